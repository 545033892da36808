"""Depth: the share of a training step that the loss takes, and frames a second of the loader beside
a plain PIL dataset that maps pixels one by one (configs/benchmark_depth.yaml)."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import functional

from datasets.depth import bin_centers
from datasets.nyud2 import HISTOGRAM, DepthDataset
from datasets.nyud2_files import encode
from engine.runs.run import composed
from engine.training import build
from synthetic.mini.rooms import depth_frequencies, frame

ROWS = ("vanilla", "bni", "gai", "histogram")
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
GREY, SPREAD = torch.tensor([0.299, 0.587, 0.114]), torch.tensor([0.2175, 0.0188, 0.0045])
AXES = torch.tensor(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)


class PlainDataset(Dataset):
    """The same transforms as usual: PIL, tensors, and, as in the released code, a lambda for every
    pixel."""

    def __init__(self, files: list[tuple[Path, Path]], weights: list[float]):
        self.files, self.weights = files, weights

    def __len__(self) -> int:
        return len(self.files)

    def bin_of(self, depth: np.float32) -> int:
        return min(int(depth * np.float32(10)), 99)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        image, depth = (Image.open(path) for path in self.files[index])
        image = image.resize((320, 240), Image.Resampling.BILINEAR)
        depth = depth.resize((320, 240), Image.Resampling.NEAREST)
        turn, coin, *amounts = torch.rand(5).tolist()
        if coin < 0.5:
            image, depth = (x.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for x in (image, depth))
        image = image.rotate(10 * turn - 5, Image.Resampling.BILINEAR)
        depth = depth.rotate(10 * turn - 5, Image.Resampling.NEAREST)
        box = (8, 6, 312, 234)
        image, depth = image.crop(box), depth.crop(box)
        depth = depth.resize((152, 114), Image.Resampling.NEAREST)
        tensor = functional.to_tensor(image)
        tensor = tensor + (AXES @ (0.1 * torch.randn(3) * SPREAD))[:, None, None]
        for step in torch.randperm(3).tolist():
            grey = torch.tensordot(GREY, tensor, 1)[None].expand_as(tensor)
            other = (torch.zeros_like(tensor), grey.mean().expand_as(tensor), grey)[step]
            tensor = other.lerp(tensor, 0.6 + 0.8 * amounts[step])
        metres = functional.to_tensor(depth) * 10
        pixels = map(lambda d: self.weights[self.bin_of(d)], metres.numpy().ravel())
        weights = torch.tensor(list(pixels)).reshape(metres.shape)
        return functional.normalize(tensor, MEAN, STD), metres, weights


def write_frames(root: Path, count: int) -> None:
    """Training frames of NYU's own size, 640 x 480."""
    (root / "nyu2_train").mkdir()
    lines = []
    for index in range(count):
        image, depth = (
            cv2.resize(x, (640, 480), interpolation=cv2.INTER_NEAREST) for x in frame((0, index))
        )
        for ending, data in encode(image, depth, "train").items():
            (root / f"nyu2_train/{index}{ending}").write_bytes(data)
        lines.append(f"data/nyu2_train/{index}.jpg,data/nyu2_train/{index}.png\n")
    (root / "nyu2_train.csv").write_text("".join(lines))
    np.save(root / HISTOGRAM, np.ones((count, 100), np.int32))


def loaders(frames: int, rounds: int) -> dict[str, float]:
    """Frames a second on one core: ours (the weights' look-up included) and plain."""
    threads, cv_threads = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _loaders(Path(folder), frames, rounds)
    finally:
        torch.set_num_threads(threads)
        cv2.setNumThreads(cv_threads)


def _loaders(root: Path, frames: int, rounds: int) -> dict[str, float]:
    write_frames(root, frames)
    ours, table = DepthDataset(root, "train", (114, 152)), torch.rand(100)
    plain = PlainDataset(ours.frames.files, table.tolist())  # pyright: ignore
    ways: dict[str, Callable[[int], Any]] = {
        "ours": lambda i: table[(ours[i]["target"] * 10).long().clamp(max=99)],
        "plain": plain.__getitem__,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            for index in range(frames):
                way(index)
            seconds[name].append(time.perf_counter() - start)
    return {name: frames / statistics.median(taken) for name, taken in seconds.items()}


def experiment(row: str, depth: int) -> tuple[Any, Any]:
    """The paper's model and a row's loss, with random weights, and its optimiser."""
    settings = [f"experiment=nyud2/{row}", f"model=depth_resnet{depth}", "model.weights=null"]
    cfg = composed("train", settings)
    counts = (1e9 * depth_frequencies()).astype(np.int64)
    task: Any = build.task(cfg, bin_centers()[:, None], None, counts)
    return task.train(), build.optimizer(cfg, task)


def maps(batch: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions (N, W) and depths (N, 1) of a batch of full maps."""
    rows = batch * 114 * 152
    return torch.rand(rows, width).requires_grad_(), 0.7 + 9.3 * torch.rand(rows, 1)


def loss_seconds(task: Any, batch: int) -> float:
    """Forward and backward of the loss alone; the fastest of ten."""
    pred, target = maps(batch, task.loss.likelihood.width(1))
    return min(timed(lambda: task.loss(pred, target).backward()) for _ in range(10))


def step_seconds(task: Any, optimizer: Any, batch: int, steps: int) -> float:
    """A whole training step, loss included; the fastest counts."""
    target = maps(batch, 1)[1].reshape(batch, 1, 114, 152)
    data = {"input": torch.randn(batch, 3, 228, 304), "target": target}

    def step() -> None:
        task(data)[0].backward()
        optimizer.step()
        optimizer.zero_grad()

    return min(timed(step) for _ in range(steps))


def timed(what: Callable[[], Any]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def shares(depth: int, batch: int, steps: int) -> dict[str, dict[str, float]]:
    """{row: {"loss", "step"}} in seconds; the network is timed once, as it is one for all rows."""
    vanilla, optimizer = experiment(ROWS[0], depth)
    network = step_seconds(vanilla, optimizer, batch, steps) - loss_seconds(vanilla, batch)
    del vanilla, optimizer
    found = {}
    for row in ROWS:
        loss = loss_seconds(experiment(row, depth)[0], batch)
        found[row] = {"loss": loss, "step": network + loss}
    return found
