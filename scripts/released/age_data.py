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
from scripts.released.clones import Clone
from scripts.released.inputs import Quantities, ages, evidence, official, picture, rms


def mixture(root: Path, work: Path) -> Quantities:
    """GAI's mixture of eight components, fitted by their script to the same labels."""
    script = Clone(root, "imdb-wiki-dir").load("preprocess_gmm")
    frame = pandas.DataFrame({"age": ages(), "path": "", "split": "train"})
    frame.to_csv(work / "imdb_wiki.csv", index=False)
    batches = [(None, torch.from_numpy(ages()).float()[:, None], None)]  # images are not needed
    argv = ["preprocess_gmm", "--data_dir", str(work), "--workers", "0"]
    loader = mock.patch.object(script, "DataLoader", return_value=batches)
    with loader, mock.patch("sys.argv", argv), contextlib.chdir(work):
        script.prerpocess_gmm()
    own = fitted(official("imdb_wiki/gai").loss.prior, ages()[:, None].astype(float))
    sides = evidence(own, joblib.load(work / "gmm.pkl"), noise=10.0, top=120, nodes=481)
    yield "GAI, the fitted mixture: log-evidence at 0 to 120 years", *sides


def files(root: Path, work: Path) -> Quantities:
    """IMDB-WIKI's filter and split, on generated .mat files."""
    write_mats(work)
    clone = Clone(root, "imdb-wiki-dir/data")
    script = clone.load("create_imdb_wiki")
    with mock.patch("sys.argv", ["create", "--data_path", str(work)]):
        script.create("imdb")
        script.create("wiki")
        script.combine_dataset()
    table = pandas.read_csv(work / "meta" / "imdb_wiki.csv")
    found, paths = sources.imdb_wiki(work)
    yield "IMDB-WIKI, filter: paths that are kept", paths, table["path"].to_numpy(str)
    yield "IMDB-WIKI, ages", found, table["age"].to_numpy()
    script = clone.load("preprocess_imdb_wiki")
    yield "IMDB-WIKI, split", *splits(script, work, "imdb_wiki", found)


def splits(script: Any, work: Path, name: str, found: np.ndarray) -> tuple:
    """Return our balanced split of meta/<name>.csv and theirs."""
    script.BASE_PATH = str(work)
    writable = property(lambda series: np.array(series.array, dtype=object))
    # Since pandas 3 .values is read-only and fillna(inplace) acts on a copy: train stays empty.
    with mock.patch.object(pandas.Series, "values", writable):
        script.make_balanced_testset(name, verbose=False, vis=False, save=True)
    cfg = composed("prepare_age", [f"source={name}", "root=."])
    other = pandas.read_csv(work / f"{name}.csv")["split"].fillna("train")
    return balanced_split(found, cfg.cap, cfg.seed), other.to_numpy(str)


def write_mats(work: Path) -> None:
    """Write imdb_crop/imdb.mat and wiki_crop/wiki.mat with 3,000 generated faces each."""
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


def images(root: Path, work: Path) -> Quantities:
    """Images as the network sees them, in units where black is -1 and white 1."""
    dataset = Clone(root, "imdb-wiki-dir").load("datasets").IMDBWIKI
    sizes = [(224, 224), (150, 110), (410, 340), (1100, 900)]
    names = [f"{height}.jpg" for height, _ in sizes]
    for name, size in zip(names, sizes, strict=True):
        cv2.imwrite(str(work / name), picture(*size), [cv2.IMWRITE_JPEG_QUALITY, 92])
    rows = [f"30,{name},{split}\n" for name in names for split in ("test", "train")]
    (work / "faces.csv").write_text("age,path,split\n" + "".join(rows))
    frame = pandas.read_csv(work / "faces.csv")
    own, theirs = {}, {}
    for split in ("test", "train"):
        own[split] = AgeDataset(work / "faces.csv", work, split, 224)
        theirs[split] = dataset(frame[frame["split"] == split], str(work), 224, split)
    for index, (height, width) in enumerate(sizes):
        sides = own["test"][index]["input"], theirs["test"][index][0]
        title = f"test image from {width} x {height}"
        if index == 0:
            yield f"{title}, pixels", *sides
        else:
            yield f"{title}, rms", rms(*sides), 0.0
    sides = augmented(own["train"], theirs["train"])
    yield "training image of 224 px, four crops and mirrors", *sides


def augmented(own: AgeDataset, theirs: Any) -> tuple[list, list]:
    """Return the training image of 224 px for the same crops and mirrors."""
    mine, other = [], []
    for top, left, mirror in ((0, 0, 0), (32, 5, 1), (16, 16, 0), (9, 30, 1)):
        sampled = torch.tensor((top, left, mirror))
        with mock.patch.object(torch, "randint", return_value=sampled):
            mine.append(own[0]["input"])
        crop = staticmethod(lambda image, size, d=(top, left): (*d, *size))
        coin = torch.full((1,), 1.0 - mirror)
        with (
            mock.patch.object(transforms.RandomCrop, "get_params", crop),
            mock.patch.object(torch, "rand", return_value=coin),
        ):
            other.append(theirs[0][0])
    return mine, other
