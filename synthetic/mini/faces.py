"""Mini IMDB-WIKI-DIR: drawn faces whose age shows only in part, in the real one's on-disk format.

Ages are long-tailed like IMDB-WIKI's (most between 25 and 40, few children, few old). A face shows
an apparent age, which is off by some years, and each cue (wrinkles, grey hair, hairline, sagging,
spots) strays from it again or is hidden (dyed hair, retouched photo). So the best guess from the
image regresses to the mean of the training ages, which is what balanced losses are for.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import cv2
import numpy as np

from datasets.ages import write_csv
from datasets.split import balanced_split
from synthetic.mini.face_drawing import Traits, render
from synthetic.mini.folder import whole_folder

VERSION = 1  # of the drawing; a new one makes old folders be drawn again
OLDEST = 100
# Relative frequency of the ages at the knots, interpolated in the logarithm.
_KNOTS = [0, 4, 10, 15, 20, 26, 31, 37, 45, 55, 65, 75, 85, 100]
_FREQUENCY = [0.035, 0.030, 0.040, 0.10, 0.42, 0.92, 1.0, 0.88, 0.52, 0.27, 0.12, 0.05, 0.02, 0.004]

_SKINS = [
    [244, 208, 184],
    [232, 188, 158],
    [208, 160, 124],
    [176, 124, 90],
    [132, 88, 62],
    [96, 62, 46],
]
_HAIRS = [[34, 26, 22], [60, 40, 28], [104, 68, 40], [150, 104, 60], [206, 168, 104], [140, 62, 34]]
_IRISES = [[78, 52, 34], [70, 100, 130], [84, 110, 70], [52, 38, 30]]


def age_frequencies() -> np.ndarray:
    """(OLDEST + 1,) probabilities of the ages 0..OLDEST, long-tailed like IMDB-WIKI's."""
    density = np.exp(np.interp(np.arange(OLDEST + 1), _KNOTS, np.log(_FREQUENCY)))
    return density / density.sum()


def draw_traits(age: float, rng: np.random.Generator) -> Traits:
    """A person of the given age, with everything else about the picture drawn at random."""
    apparent = age + rng.normal(0, 1 + 0.05 * age)

    def cue(start: float, span: float, spread: float) -> float:
        """0 below `start` years, 1 at `start + span`, for an age that strays once more."""
        return float(np.clip((apparent + rng.normal(0, spread) - start) / span, 0, 1.2))

    retouched = 0.4 if rng.random() < 0.15 else 1.0
    dyed = rng.random() < 0.2
    bald_gene = rng.random() < 0.4
    infant = float(np.clip(1 - (apparent + rng.normal(0, 1)) / 17, 0, 1))
    tone = rng.integers(len(_SKINS))
    hair = np.array(_HAIRS[rng.integers(len(_HAIRS) if tone < 3 else 2)]) + rng.normal(0, 8, 3)
    background = rng.uniform(30, 225, (2, 1)) + rng.normal(0, 18, (2, 3))
    grey = 0.0 if dyed else 1 / (1 + np.exp(-(apparent + rng.normal(0, 6) - 54) / 6))
    long_hair = rng.random() < 0.45 and not bald_gene and infant < 0.85
    adult_man = not long_hair and infant == 0
    spots = rng.poisson(7 * np.clip((apparent - 45) / 40, 0, 1))
    return Traits(
        skin=np.clip(np.array(_SKINS[tone]) + rng.normal(0, 7, 3), 30, 250),
        hair=np.clip(hair + grey * (np.array([205, 205, 208]) - hair), 10, 240),
        shirt=rng.uniform(30, 230, 3),
        background=np.clip(background, 0, 255),
        iris=np.array(_IRISES[rng.integers(len(_IRISES))], float),
        infant=infant,
        wrinkles=retouched * rng.uniform(0.75, 1.2) * cue(22, 55, 5),
        sagging=cue(32, 50, 5),
        receding=bald_gene * cue(24, 45, 8),
        volume=rng.uniform(0.2, 1.0) * (0.25 if infant > 0.9 else 1.0),
        spots=np.stack([rng.uniform(-0.6, 0.6, spots), rng.uniform(-0.75, 0.6, spots)], 1),
        long_hair=long_hair,
        fringe=rng.random() < 0.3,
        beard=rng.uniform(0.3, 0.9) if adult_man and rng.random() < 0.35 else 0.0,
        glasses=rng.random() < (0.04 if infant else 0.12 + 0.002 * age),
        smile=rng.uniform(-0.2, 1.0),
        brow=rng.uniform(0.2, 1.0),
        width=rng.uniform(0.74, 0.88),
        tilt=rng.normal(0, 7),
        yaw=rng.uniform(-0.16, 0.16),
        scale=rng.uniform(0.88, 1.1),
        shift=rng.uniform(-0.04, 0.04, 2),
        light=rng.uniform(0.7, 1.15) * rng.uniform(0.92, 1.08, 3),
        light_slope=rng.uniform(-0.5, 0.5, 2),
        blur=rng.uniform(0, 0.008),
        noise=rng.uniform(1, 6),
    )


def face(age: float, size: int, seed: tuple[int, ...]) -> np.ndarray:
    """(S, S, 3) uint8 RGB picture of a person of that age; the seed is who and how."""
    rng = np.random.default_rng(seed)
    return render(draw_traits(age, rng), size, rng)


def write_faces(
    folder: str | Path,
    images: int,
    size: int,
    cap: int,
    seed: int,
    progress: Callable[[Iterable], Iterable] = iter,
) -> bool:
    """Draw a dataset into `folder` (JPEGs and imdb_wiki.csv), whole or not at all.

    False if the folder is already there with the same settings. `images` counts all splits; an age
    gives at most `cap` images to val and to test.
    """
    settings = {"version": VERSION, "images": images, "size": size, "cap": cap, "seed": seed}
    with whole_folder(folder, settings) as work:
        if work is None:
            return False
        rng = np.random.default_rng((seed, 0))
        ages = rng.choice(OLDEST + 1, images, p=age_frequencies())
        paths = [_path(index) for index in range(images)]
        for parent in {Path(path).parent for path in paths}:
            (work / parent).mkdir(parents=True)
        for index, path in enumerate(progress(paths)):
            picture = face(ages[index], size, (seed, 1, index))
            bgr = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
            encoded = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, 92])[1]
            (work / path).write_bytes(encoded.tobytes())
        split = balanced_split(ages, cap, seed)
        write_csv(work / "imdb_wiki.csv", ages.tolist(), paths, split.tolist())
    return True


def _path(index: int) -> str:
    half = "wiki_crop" if index % 8 == 0 else "imdb_crop"
    return f"{half}/{index % 100:02d}/{index:06d}.jpg"
