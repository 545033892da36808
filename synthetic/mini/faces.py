"""Mini IMDB-WIKI-DIR: generated faces whose age shows only in part, in the real on-disk format.

Ages are long-tailed like IMDB-WIKI's: most between 25 and 40, few children, few old people. A face
shows an apparent age, which is off by some years, and each cue (wrinkles, grey hair, hairline,
sagging, spots) deviates from it again or is hidden (dyed hair, retouched photo). So the best
prediction from the image regresses to the mean of the training ages, as on real data.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from datasets.ages import write_csv
from datasets.io.files import Progress
from datasets.split import balanced_split
from synthetic.mini.face_drawing import render
from synthetic.mini.folder import generate, write_jpeg

VERSION = 1  # of the pictures; a new version regenerates old folders
OLDEST = 100
# Relative frequency of the ages at the knots, interpolated in the logarithm.
_KNOTS = [0, 4, 10, 15, 20, 26, 31, 37, 45, 55, 65, 75, 85, 100]
_FREQUENCY = [0.035, 0.030, 0.040, 0.10, 0.42, 0.92, 1.0, 0.88, 0.52, 0.27, 0.12, 0.05, 0.02, 0.004]
_SKINS = [[244, 208, 184], [232, 188, 158], [208, 160, 124], [176, 124, 90], [132, 88, 62]]
_SKINS += [[96, 62, 46]]
_HAIRS = [[34, 26, 22], [60, 40, 28], [104, 68, 40], [150, 104, 60], [206, 168, 104], [140, 62, 34]]
_IRISES = [[78, 52, 34], [70, 100, 130], [84, 110, 70], [52, 38, 30]]


def age_frequencies() -> np.ndarray:
    """Return the probabilities (OLDEST + 1,) of the ages 0..OLDEST."""
    density = np.exp(np.interp(np.arange(OLDEST + 1), _KNOTS, np.log(_FREQUENCY)))
    return density / density.sum()


def sample_traits(age: float, rng: np.random.Generator) -> SimpleNamespace:
    """Sample the visible traits of a person of the given age, for face_drawing.render.

    Numbers without a unit go from 0 (none) to about 1 (maximum); colours are RGB in 0..255.
    """
    apparent = age + rng.normal(0, 1 + 0.05 * age)

    def cue(start: float, span: float, spread: float) -> float:
        """Return 0 below `start` years and 1 at `start + span`, for an age that deviates again."""
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
    return SimpleNamespace(
        skin=np.clip(np.array(_SKINS[tone]) + rng.normal(0, 7, 3), 30, 250),
        hair=np.clip(hair + grey * (np.array([205, 205, 208]) - hair), 10, 240),
        shirt=rng.uniform(30, 230, 3),
        background=np.clip(background, 0, 255),  # (2, 3) the two ends of a gradient
        iris=np.array(_IRISES[rng.integers(len(_IRISES))], float),
        infant=infant,  # round head, low and large features, small nose, soft brows
        wrinkles=retouched * rng.uniform(0.75, 1.2) * cue(22, 55, 5),
        sagging=cue(32, 50, 5),  # jowls, lids, bags, thin lips, long nose
        receding=bald_gene * cue(24, 45, 8),  # hairline
        volume=rng.uniform(0.2, 1.0) * (0.25 if infant > 0.9 else 1.0),  # of the hair
        spots=np.stack([rng.uniform(-0.6, 0.6, spots), rng.uniform(-0.75, 0.6, spots)], 1),
        long_hair=long_hair,
        fringe=rng.random() < 0.3,
        beard=rng.uniform(0.3, 0.9) if adult_man and rng.random() < 0.35 else 0.0,
        glasses=rng.random() < (0.04 if infant else 0.12 + 0.002 * age),
        smile=rng.uniform(-0.2, 1.0),
        brow=rng.uniform(0.2, 1.0),  # thickness
        width=rng.uniform(0.74, 0.88),  # of the head
        tilt=rng.normal(0, 7),  # degrees
        yaw=rng.uniform(-0.16, 0.16),  # shift of the features over the head
        scale=rng.uniform(0.88, 1.1),
        shift=rng.uniform(-0.04, 0.04, 2),  # in image sides
        light=rng.uniform(0.7, 1.15) * rng.uniform(0.92, 1.08, 3),  # gain per channel
        light_slope=rng.uniform(-0.5, 0.5, 2),  # brightness change along x and y
        blur=rng.uniform(0, 0.008),  # in image sides
        noise=rng.uniform(1, 6),  # grey levels
    )


def face(age: float, size: int, seed: tuple[int, ...]) -> np.ndarray:
    """Return the picture (S, S, 3), uint8 RGB, of a person of that age."""
    rng = np.random.default_rng(seed)
    return render(sample_traits(age, rng), size, rng)


def write_faces(
    folder: str | Path, images: int, size: int, cap: int, seed: int, progress: Progress = iter
) -> bool:
    """Generate a dataset (JPEGs and imdb_wiki.csv); False if it exists with the same settings.

    images: number of all splits.
    cap: largest number of images of one age in val, and in test.
    """
    settings = {"version": VERSION, "images": images, "size": size, "cap": cap, "seed": seed}

    def fill(work: Path) -> None:
        rng = np.random.default_rng((seed, 0))
        ages = rng.choice(OLDEST + 1, images, p=age_frequencies())
        halves = ["wiki_crop" if index % 8 == 0 else "imdb_crop" for index in range(images)]
        paths = [f"{half}/{i % 100:02d}/{i:06d}.jpg" for i, half in enumerate(halves)]
        for index, path in enumerate(progress(paths)):
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            write_jpeg(work / path, face(ages[index], size, (seed, 1, index)))
        split = balanced_split(ages, cap, seed)
        write_csv(work / "imdb_wiki.csv", ages.tolist(), paths, split.tolist())

    return generate(folder, settings, fill)
