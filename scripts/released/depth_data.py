"""jiawei-ren/BalancedMSE, nyud2-dir: what the network sees of a frame, and the balanced mask.

h, w: a depth map's size; metres throughout.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import cv2
import numpy as np
import torch

from datasets import depth as maps
from datasets import nyud2_files
from datasets.io import nyud2_frames
from datasets.io.arrays import read_npy
from engine.training import build
from scripts.released.age_data import picture
from scripts.released.clones import Clone, Missing
from scripts.released.depth import arguments, configured, open_clone
from scripts.released.lines import Lines, rms


def write_frames(work: Path, side: str, height: int, width: int) -> None:
    """Two frames in the layout of NYUD2-DIR: smooth depth with steps, as rooms have."""
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


def loaders(root: Path | None, work: Path, lines: Lines) -> None:
    """What the network sees, from frames of 640 x 480 and 320 x 240."""
    clone = open_clone(root)
    loader = clone.load("loaddata")
    args = arguments(data_dir=str(work))
    for height, width in ((480, 640), (240, 320)):
        for side in ("train", "test"):
            write_frames(work, side, height, width)
        np.save(work / "test_balanced_mask.npy", np.ones((2, *maps.CROP), np.uint8))
        np.save(work / "train_depth_histogram.npy", np.ones((2, 100), np.int64))
        cfg = configured("vanilla", f"++paths.nyud2={work}")
        for title, turn, mirror in (
            ("", 0.0, False),
            (", turned by 3 degrees and mirrored", 3.0, True),
        ):
            own = drawn(build.dataset(cfg, "train"), turn, mirror)
            with clone.running():
                training = loader.getTrainingData(args).dataset
            theirs = released_drawn(clone, training, turn, mirror)
            name = f"training {{}} from {width} x {height}{title}"
            view(lines, name, own, theirs)
        own = build.dataset(cfg, "test")[0]
        with clone.running():
            theirs = loader.getTestingData(args).dataset[0]
        view(lines, f"test {{}} from {width} x {height}", own, theirs)


def real_frames(root: Path | None, work: Path, lines: Lines) -> None:
    """The same on the first frames of the real NYUD2-DIR, where they are given."""
    given = work / "nyud2"
    if not given.is_dir():
        raise Missing("no frames given (nyud2=<the folder of nyu2_train.csv>)")
    clone = open_clone(root)
    loader = clone.load("loaddata")
    some = work / "some"
    some.mkdir()
    for side in ("train", "test"):
        rows = (given / f"nyu2_{side}.csv").read_text().splitlines(keepends=True)[:3]
        (some / f"nyu2_{side}.csv").write_text("".join(rows))
        (some / f"nyu2_{side}").symlink_to((given / f"nyu2_{side}").resolve())
    np.save(some / "test_balanced_mask.npy", np.ones((3, *maps.CROP), np.uint8))
    np.save(some / "train_depth_histogram.npy", np.ones((3, 100), np.int64))
    cfg, args = configured("vanilla", f"++paths.nyud2={some}"), arguments(data_dir=str(some))
    with clone.running():
        training, testing = (
            loader.getTrainingData(args).dataset,
            loader.getTestingData(args).dataset,
        )
    own = drawn(build.dataset(cfg, "train"), 3.0, True)
    name = "a real frame in training, turned and mirrored: {}"
    view(lines, name, own, released_drawn(clone, training, 3.0, True))
    with clone.running():
        theirs = testing[2]
    view(lines, "a real frame in the test: {}", build.dataset(cfg, "test")[2], theirs)


GREY_LEVEL = 1e-4  # rms: of a spline's values, one in 30,000 is rounded to the next grey level


def view(lines: Lines, name: str, own: dict, theirs: dict) -> None:
    """The depth map in metres, and the image in units of the colours' standard deviation."""
    lines.add(name.format("depth"), own["target"], theirs["depth"], 1e-5, "m")
    difference = rms(own["input"], theirs["image"])
    lines.add(f"{name.format('image')}, rms", difference, 0.0, GREY_LEVEL, "std")


def drawn(dataset: Any, turn: float, mirror: bool) -> dict:
    """Our training sample for these draws, its colours as they are."""

    def rand(*size: Any, **kwargs: Any) -> torch.Tensor:
        if size in ((2,), ((2,),)):
            return torch.tensor([(turn / maps.ANGLE + 1) / 2, 0.0 if mirror else 1.0])
        return torch.full(size, 0.5)

    zeros = lambda *size, **kwargs: torch.zeros(size)  # noqa: E731
    with mock.patch.object(torch, "rand", rand), mock.patch.object(torch, "randn", zeros):
        return dataset[0]


def released_drawn(clone: Clone, dataset: Any, turn: float, mirror: bool) -> dict:
    """Theirs."""
    for step in dataset.transform.transforms:
        if hasattr(step, "eigval"):
            step.eigval = torch.zeros(3)
    angle = lambda low, high: turn if high == maps.ANGLE else 0.0  # noqa: E731
    with (
        clone.running(),
        mock.patch("random.uniform", angle),
        mock.patch("random.random", return_value=0.0 if mirror else 1.0),
    ):
        return dataset[0]


def colours(root: Path | None, work: Path, lines: Lines) -> None:
    """Lighting and the three jitters, for the same draws in two orders."""
    clone = open_clone(root)
    steps = clone.load("nyu_transform")
    image = picture(*maps.CROP)
    found: list[list[torch.Tensor]] = []
    alphas, lights = [0.3, -0.25, 0.1], torch.tensor([0.05, -0.08, 0.11])
    for order in ([0, 1, 2], [2, 0, 1]):
        draws = {
            "randperm": lambda n, o=order: torch.tensor(o),
            "rand": lambda n: torch.tensor([(1 - alpha / maps.JITTER) / 2 for alpha in alphas]),
            "randn": lambda n: lights / maps.LIGHTING,
        }
        with mock.patch.multiple(torch, **draws):
            matrix = maps.random_colours(image.reshape(-1, 3).mean(0) / 255)
        found.append([maps.to_tensor(image, matrix)])
        fill = lambda tensor, *args: tensor.copy_(lights)  # noqa: E731
        tensor = torch.from_numpy(image).permute(2, 0, 1).float() / 255
        loader = clone.load("loaddata")
        with (
            clone.running(),
            mock.patch("random.uniform", side_effect=alphas),
            mock.patch.object(torch, "randperm", draws["randperm"]),
            mock.patch.object(torch.Tensor, "normal_", fill),
            mock.patch.object(loader, "depthDataset", SimpleNamespace),
            mock.patch.object(loader, "DataLoader", lambda dataset, *args, **kwargs: dataset),
        ):
            made = loader.getTrainingData(arguments(data_dir="."))
            sample = {"image": tensor, "depth": None}
            for step in made.transform.transforms:
                if isinstance(step, (steps.Lighting, steps.ColorJitter, steps.Normalize)):
                    sample = step(sample)
        found[-1].append(sample["image"])
    sides = [[row[side] for row in found] for side in (0, 1)]
    lines.add("training image: lighting and jitter, same draws", sides[0], sides[1], 1e-5, "std")


def mask(root: Path | None, work: Path, lines: Lines) -> None:
    """The balanced test mask: the draws differ, how many pixels each bin gives does not."""
    clone = open_clone(root)
    script = clone.load("preprocess_nyud2")
    rng = np.random.default_rng(1)
    metres = (0.7 + 9.3 * rng.random((3, 1, *maps.CROP)) ** 2).astype(np.float32)
    batches = [{"depth": torch.from_numpy(metres)}]
    with clone.running(), mock.patch.object(script, "load_data", return_value=(None, batches)):
        script.create_balanced_testset(SimpleNamespace(data_dir=str(work)))
    theirs = read_npy(work / "test_balanced_mask.npy")
    bins = maps.bins_of(metres[:, 0])
    own = maps.balanced_mask(bins, seed=0)
    counts = [np.bincount(bins[m > 0], minlength=100) for m in (own, theirs)]
    lines.same("balanced test mask, pixels of each bin", counts[0], counts[1])


def histograms(root: Path | None, work: Path, lines: Lines) -> None:
    """The bins of the maps that the mask and the histogram are made from."""
    clone = open_clone(root)
    loader = clone.load("loaddata")
    for height, width in ((480, 640), (240, 320)):
        write_frames(work, "test", height, width)
        np.save(work / "test_balanced_mask.npy", np.ones((2, *maps.CROP), np.uint8))
        counts = []
        with clone.running():
            dataset = loader.getTestingData(arguments(data_dir=str(work))).dataset
            for item in (dataset[0], dataset[1]):
                bins = [dataset.get_bin_idx(value) for value in item["depth"].numpy().ravel()]
                counts.append(np.bincount(bins, minlength=100))
        own = nyud2_files.histograms(nyud2_frames.frames(work, "test"))
        lines.same(f"histograms of two frames of {width} x {height}", own, np.stack(counts))


CHECKS = (loaders, real_frames, colours, histograms, mask)
