"""jiawei-ren/BalancedMSE, nyud2-dir: the network's view of a frame, and the balanced mask.

Depths are in metres.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import cv2
import numpy as np
import torch

from datasets import depth as maps
from datasets import nyud2
from datasets.io.arrays import read_npy
from datasets.io.nyud2_frames import Frames
from engine.training import build
from scripts.released.clones import Clone, Missing
from scripts.released.depth import arguments
from scripts.released.inputs import Quantities, official, picture, rms


def write_frames(work: Path, side: str, height: int, width: int) -> None:
    """Write two frames in the layout of NYUD2-DIR: smooth depth with steps, as rooms have."""
    folder = work / f"nyu2_{side}"
    folder.mkdir(exist_ok=True)
    rows = []
    for number in range(2):
        grey = cv2.GaussianBlur(picture(height, width, seed=number)[..., 0], (0, 0), 3)
        metres = 0.75 + 9 * (grey / 255.0) ** 2
        metres[:, width // 3 : width // 2] *= 0.5
        metres = np.maximum(metres, 0.71)
        scale, kind = (25.5, np.uint8) if side == "train" else (1000, np.uint16)
        cv2.imwrite(str(folder / f"{number}.png"), np.round(metres * scale).astype(kind))
        cv2.imwrite(str(folder / f"{number}.jpg"), picture(height, width, seed=number + 7))
        rows.append(f"data/nyu2_{side}/{number}.jpg,data/nyu2_{side}/{number}.png\n")
    (work / f"nyu2_{side}.csv").write_text("".join(rows))


def views(clone: Clone, folder: Path, frames: int, titles: dict[str, tuple]) -> Quantities:
    """Yield depth (metres) and image (standard deviations of the colours) of a frame.

    titles: {title: ("train", angle, mirror) or ("test", row)}
    """
    loader, args = clone.load("loaddata"), arguments(clone, data_dir=str(folder))
    np.save(folder / "test_balanced_mask.npy", np.ones((frames, *maps.CROP), np.uint8))
    np.save(folder / "train_depth_histogram.npy", np.ones((frames, 100), np.int64))
    cfg = official("nyud2/vanilla", f"++paths.nyud2={folder}")
    for title, (side, *sampled) in titles.items():
        dataset = build.dataset(cfg, side)
        if side == "train":
            own = augmented(dataset, *sampled)
            theirs = released_augmented(loader.getTrainingData(args).dataset, *sampled)
        else:
            own, theirs = dataset[sampled[0]], loader.getTestingData(args).dataset[sampled[0]]
        yield title.format("depth"), own["target"], theirs["depth"]
        yield f"{title.format('image')}, rms", rms(own["input"], theirs["image"]), 0.0


def loaders(root: Path, work: Path) -> Quantities:
    """Frames of 640 x 480 and 320 x 240, and the histograms that the mask is made from."""
    clone = Clone(root, "nyud2-dir")
    loader, args = clone.load("loaddata"), arguments(clone, data_dir=str(work))
    for height, width in ((480, 640), (240, 320)):
        for side in ("train", "test"):
            write_frames(work, side, height, width)
        title = f"{{}} from {width} x {height}"
        titles = {
            f"training {title}": ("train", 0.0, False),
            f"training {title}, turned by 3 degrees and mirrored": ("train", 3.0, True),
            f"test {title}": ("test", 0),
        }
        yield from views(clone, work, 2, titles)
        dataset, counts = loader.getTestingData(args).dataset, []
        for item in (dataset[0], dataset[1]):
            bins = [dataset.get_bin_idx(value) for value in item["depth"].numpy().ravel()]
            counts.append(np.bincount(bins, minlength=100))
        own = nyud2.histograms(Frames(work, "test"))
        yield f"histograms of two frames of {width} x {height}", own, np.stack(counts)


def real_frames(root: Path, work: Path) -> Quantities:
    """The first frames of the real NYUD2-DIR, if its folder is given."""
    given, some = work / "nyud2", work / "some"
    if not given.is_dir():
        raise Missing("no frames given (nyud2=<the folder of nyu2_train.csv>)")
    some.mkdir()
    for side in ("train", "test"):
        rows = (given / f"nyu2_{side}.csv").read_text().splitlines(keepends=True)[:3]
        (some / f"nyu2_{side}.csv").write_text("".join(rows))
        (some / f"nyu2_{side}").symlink_to((given / f"nyu2_{side}").resolve())
    titles = {
        "a real frame in training, turned and mirrored: {}": ("train", 3.0, True),
        "a real frame in the test: {}": ("test", 2),
    }
    yield from views(Clone(root, "nyud2-dir"), some, 3, titles)


def augmented(dataset: Any, turn: float, mirror: bool) -> dict:
    """Return our training sample for this rotation and mirroring, its colours unchanged."""

    def rand(*size: Any, **kwargs: Any) -> torch.Tensor:
        if size in ((2,), ((2,),)):
            return torch.tensor([(turn / maps.ANGLE + 1) / 2, 0.0 if mirror else 1.0])
        return torch.full(size, 0.5)

    zeros = lambda *size, **kwargs: torch.zeros(size)  # noqa: E731
    with mock.patch.object(torch, "rand", rand), mock.patch.object(torch, "randn", zeros):
        return dataset[0]


def released_augmented(dataset: Any, turn: float, mirror: bool) -> dict:
    """Return theirs."""
    for step in dataset.transform.transforms:
        if hasattr(step, "eigval"):
            step.eigval = torch.zeros(3)
    angle = lambda low, high: turn if high == maps.ANGLE else 0.0  # noqa: E731
    coin = mock.patch("random.random", return_value=0.0 if mirror else 1.0)
    with mock.patch("random.uniform", angle), coin:
        return dataset[0]


def colours(root: Path, work: Path) -> Quantities:
    """Lighting and the three jitters, for the same random numbers in two orders."""
    clone = Clone(root, "nyud2-dir")
    steps, loader = clone.load("nyu_transform"), clone.load("loaddata")
    with (
        mock.patch.object(loader, "depthDataset", SimpleNamespace),
        mock.patch.object(loader, "DataLoader", lambda dataset, *args, **kwargs: dataset),
    ):
        training = loader.getTrainingData(arguments(clone, data_dir="."))
    kinds = (steps.Lighting, steps.ColorJitter, steps.Normalize)
    image = picture(*maps.CROP)
    alphas, lights = [0.3, -0.25, 0.1], torch.tensor([0.05, -0.08, 0.11])
    own, theirs = [], []
    for order in ([0, 1, 2], [2, 0, 1]):
        sampled = {
            "randperm": lambda n, o=order: torch.tensor(o),
            "rand": lambda n: torch.tensor([(1 - alpha / maps.JITTER) / 2 for alpha in alphas]),
            "randn": lambda n: lights / maps.LIGHTING,
        }
        with mock.patch.multiple(torch, **sampled):
            matrix = maps.random_colours(image.reshape(-1, 3).mean(0) / 255)
        own.append(maps.to_tensor(image, matrix))
        sample = {"image": torch.from_numpy(image).permute(2, 0, 1).float() / 255, "depth": None}
        with (
            mock.patch("random.uniform", side_effect=alphas),
            mock.patch.object(torch, "randperm", sampled["randperm"]),
            mock.patch.object(torch.Tensor, "normal_", lambda x, *args: x.copy_(lights)),
        ):
            for step in training.transform.transforms:
                sample = step(sample) if isinstance(step, kinds) else sample
        theirs.append(sample["image"])
    yield "training image: lighting and jitter, same draws", own, theirs


def mask(root: Path, work: Path) -> Quantities:
    """The balanced test mask: the pixels are sampled differently, their number per bin is equal."""
    script = Clone(root, "nyud2-dir").load("preprocess_nyud2")
    rng = np.random.default_rng(1)
    metres = (0.7 + 9.3 * rng.random((3, 1, *maps.CROP)) ** 2).astype(np.float32)
    batches = [{"depth": torch.from_numpy(metres)}]
    with mock.patch.object(script, "load_data", return_value=(None, batches)):
        script.create_balanced_testset(SimpleNamespace(data_dir=str(work)))
    bins = maps.bins_of(metres[:, 0])
    masks = maps.balanced_mask(bins, seed=0), read_npy(work / "test_balanced_mask.npy")
    counts = [np.bincount(bins[m > 0], minlength=100) for m in masks]
    yield "balanced test mask, pixels of each bin", *counts
