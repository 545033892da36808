"""jiawei-ren/BalancedMSE, imdb-wiki-dir: the filter and the split, images, GAI's mixture."""

import contextlib
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import joblib
import numpy as np
import pandas
import scipy.io
import torch
import torchvision.transforms as transforms

from datasets import sources
from datasets.ages import AgeDataset
from datasets.split import balanced_split
from engine.runs.run import composed
from engine.training.build import fitted
from losses import GaussianMixture
from scripts.released.age import ages, node_of, open_clone
from scripts.released.clones import Clone
from scripts.released.lines import Lines, rms


def mixture(root: Path | None, work: Path, lines: Lines) -> None:
    """GAI's mixture of eight components, fitted by their script to the same labels."""
    clone = open_clone(root)
    script = clone.load("preprocess_gmm")
    frame = pandas.DataFrame({"age": ages(), "path": "", "split": "train"})
    frame.to_csv(work / "imdb_wiki.csv", index=False)
    batches = [(None, torch.from_numpy(ages()).float()[:, None], None)]  # images are not needed
    argv = ["preprocess_gmm", "--data_dir", str(work), "--workers", "0"]
    here = mock.patch.object(script, "DataLoader", return_value=batches)
    with clone.running(), here, mock.patch("sys.argv", argv), contextlib.chdir(work):
        script.prerpocess_gmm()
    made = joblib.load(work / "gmm.pkl")
    other = GaussianMixture(made["weights"], made["means"], made["variances"])
    own = fitted(node_of("gai", "prior"), ages()[:, None].astype(float))
    x = torch.linspace(0, 120, 481, dtype=torch.float64)[:, None]
    sigma = torch.tensor(10.0, dtype=torch.float64)
    lines.add(
        "GAI, the fitted mixture: log-evidence at 0 to 120 years",
        own.log_density(x, sigma),
        other.log_density(x, sigma),
        1e-5,
    )


def files(root: Path | None, work: Path, lines: Lines) -> None:
    """IMDB-WIKI's filter and split, on made-up .mat files."""
    write_mats(work)
    clone = open_clone(root, "imdb-wiki-dir/data")
    script = clone.load("create_imdb_wiki")
    with clone.running(), mock.patch("sys.argv", ["create", "--data_path", str(work)]):
        script.create("imdb")
        script.create("wiki")
        script.combine_dataset()
    table = pandas.read_csv(work / "meta" / "imdb_wiki.csv")
    found, paths = sources.imdb_wiki(work)
    lines.same("IMDB-WIKI, filter: paths that are kept", paths, table["path"].to_numpy(str))
    lines.same("IMDB-WIKI, ages", found, table["age"].to_numpy())
    split = clone.load("preprocess_imdb_wiki")
    compare_split(clone, split, work, "imdb_wiki", found, lines, "IMDB-WIKI, split")


def compare_split(
    clone: Clone, script: Any, work: Path, name: str, found: np.ndarray, lines: Lines, title: str
) -> None:
    """Their balanced split of meta/<name>.csv beside ours."""
    script.BASE_PATH = str(work)
    writable = property(lambda series: np.array(series.array, dtype=object))
    # Since pandas 3 .values is read-only and fillna(inplace) acts on a copy: train stays empty.
    with clone.running(), mock.patch.object(pandas.Series, "values", writable):
        script.make_balanced_testset(name, verbose=False, vis=False, save=True)
    cfg = composed("prepare_age", [f"source={name}", "root=."])
    other = pandas.read_csv(work / f"{name}.csv")["split"].fillna("train")
    lines.same(title, balanced_split(found, cfg.cap, cfg.seed), other.to_numpy(str))


def write_mats(work: Path) -> None:
    """imdb_crop/imdb.mat and wiki_crop/wiki.mat with 3,000 made-up faces each."""
    rng = np.random.default_rng(3)
    for name in ("imdb", "wiki"):
        folder = work / f"{name}_crop"
        folder.mkdir(exist_ok=True)
        n = 3000
        second = np.where(rng.random(n) < 0.7, np.nan, rng.normal(0, 2, n))
        record = {
            "full_path": np.array([f"{i % 100:02d}/{i}.jpg" for i in range(n)], object)[None],
            "dob": rng.integers(650000, 735000, n).astype(np.int32)[None],
            "gender": np.ones((1, n)),
            "photo_taken": rng.integers(1950, 2015, n).astype(np.uint16)[None],
            "face_score": np.where(rng.random(n) < 0.2, -np.inf, rng.normal(2, 2, n))[None],
            "second_face_score": second[None],
        }
        scipy.io.savemat(folder / f"{name}.mat", {name: record})


def images(root: Path | None, work: Path, lines: Lines) -> None:
    """Images as the network sees them, in units where black is -1 and white 1."""
    clone = open_clone(root)
    dataset = clone.load("datasets")
    sizes = {"equal": (224, 224), "small": (150, 110), "large": (410, 340), "huge": (1100, 900)}
    rows = []
    for name, (height, width) in sizes.items():
        cv2.imwrite(
            str(work / f"{name}.jpg"), picture(height, width), [cv2.IMWRITE_JPEG_QUALITY, 92]
        )
        rows += [f"30,{name}.jpg,test", f"30,{name}.jpg,train"]
    (work / "faces.csv").write_text("age,path,split\n" + "\n".join(rows) + "\n")
    frame = pandas.read_csv(work / "faces.csv")
    for split in ("test", "train"):
        own = AgeDataset(work / "faces.csv", work, split, 224)
        theirs = dataset.IMDBWIKI(frame[frame["split"] == split], str(work), 224, split)
        if split == "train":
            augmented(clone, own, theirs, lines)
            continue
        for index, name in enumerate(sizes):
            image = own[index]["input"]
            with clone.running():
                other, label, _ = theirs[index]
            size, options = f"{sizes[name][1]} x {sizes[name][0]}", {}
            if name != "equal":
                options = {"deviation": "Resizing", "bound": 0.05}
            difference = rms(image, other) if options else image - other
            what = "rms" if options else "pixels"
            lines.add(
                f"test image from {size}, {what}",
                difference,
                np.zeros(np.shape(difference)),
                1e-6,
                "of 2",
                **options,
            )
            assert float(label[0]) == float(own[index]["target"])


def augmented(clone: Clone, own: AgeDataset, theirs: Any, lines: Lines) -> None:
    """The training image of 224 px for the same draws of crop and mirror."""
    found: list[list[torch.Tensor]] = []
    for top, left, mirror in ((0, 0, 0), (32, 5, 1), (16, 16, 0), (9, 30, 1)):
        with mock.patch.object(
            torch, "randint", lambda *a, d=(top, left, mirror), **k: torch.tensor(d)
        ):
            found.append([own[0]["input"]])
        place = staticmethod(lambda image, size, d=(top, left): (*d, *size))
        coin = lambda *args, m=mirror, **kwargs: torch.full((1,), 1.0 - m)  # noqa: E731
        with (
            clone.running(),
            mock.patch.object(transforms.RandomCrop, "get_params", place),
            mock.patch.object(torch, "rand", coin),
        ):
            found[-1].append(theirs[0][0])
    sides = [[row[side] for row in found] for side in (0, 1)]
    lines.add("training image of 224 px, four crops and mirrors", sides[0], sides[1], 1e-6, "of 2")


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """(H, W, 3) uint8: smooth shapes with some grain, as photographs have."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 20 + 2, width // 20 + 2, 3)).astype(np.uint8)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).astype(float)
    return np.clip(smooth + rng.normal(0, 4, smooth.shape), 0, 255).astype(np.uint8)


CHECKS = (mixture, files, images)
