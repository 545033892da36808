"""Inputs that several comparisons share, and losses, checkpoints and settings side by side.

N: samples.
"""

import zipfile
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import yaml
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from engine.cli import targets
from engine.runs.run import composed
from engine.training import build
from losses import GaussianMixture
from models import released

Quantities = Iterator[tuple[Any, ...]]  # (name, ours, theirs)
RULES = yaml.safe_load((Path(__file__).parent / "quantities.yaml").read_text())
SHOTS = {"_many": "many", "_medium": "median", "_few": "low"}  # endings of our keys: their names


def official(experiment: str, *overrides: str) -> Any:
    """Return our config of an experiment with the released settings."""
    return composed("train", [f"experiment={experiment}", "preset=official", *overrides])


def task(cfg: Any, model: Any, labels: np.ndarray, counts: Any = None) -> Any:
    """Return our task with another model than that of the config."""
    with open_dict(cfg):
        cfg.model, cfg.trust = {"_target_": "torch.nn.Identity"}, ["torch.nn"]
    made: Any = build.task(cfg, labels, counts=counts)
    made.model = model
    return made


class Network(nn.Module):
    """A function as a network."""

    def __init__(self, function: Callable):
        super().__init__()
        self.forward = function


def ages(count: int = 4000, oldest: int = 120, seed: int = 0) -> np.ndarray:
    """Return (N,) long-tailed integer ages whose tails have gaps."""
    sampled = np.random.default_rng(seed).gamma(6.0, 6.0, count)
    return np.clip(sampled, 0, oldest).astype(int)


def pair(count: int = 256, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return predictions and targets (N, 1) in years."""
    target = torch.from_numpy(ages(count, seed=seed)).float()[:, None]
    noise = torch.randn(count, 1, generator=torch.Generator().manual_seed(seed))
    return target * 0.8 + 8 + 6 * noise, target


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return (H, W, 3) uint8: smooth shapes with some grain, as photographs have."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 20 + 2, width // 20 + 2, 3)).astype(np.uint8)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).astype(float)
    return np.clip(smooth + rng.normal(0, 4, smooth.shape), 0, 255).astype(np.uint8)


def rms(ours: Any, theirs: Any) -> float:
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return float(np.sqrt(np.square(a - b).mean())) if a.shape == b.shape else np.inf


def grouped(
    title: str, names: Mapping[str, str], groups: Mapping[str, str], ours: Mapping, theirs: Mapping
) -> Quantities:
    """Yield the metrics {our key: their name} over groups {ending of our keys: their name}."""
    for key, name in names.items():
        own = [ours[key + ending] for ending in groups]
        yield title.format(key), own, [theirs[group][name] for group in groups.values()]


def evidence(ours: Any, theirs: Mapping, noise: float, top: float, nodes: int) -> tuple:
    """Return the log-evidence at 0 to `top` of our mixture, and of one that their script wrote."""
    x = torch.linspace(0, top, nodes, dtype=torch.float64)[:, None]
    other = GaussianMixture(theirs["weights"], theirs["means"], theirs["variances"])
    return tuple(p.log_density(x, torch.tensor(noise, dtype=x.dtype)) for p in (ours, other))


def stepped(loss: Callable, pred: Tensor, target: Tensor, sigma: Any = None) -> list:
    """Return [value, d / d pred, d / d sigma] of a loss."""
    pred = pred.clone().requires_grad_()
    value = loss(pred, target)
    value.backward()
    return [value, pred.grad, *([] if sigma is None else [sigma.grad])]


def noisy_losses(
    title: str, ours: Callable, theirs: Callable, rows: tuple[Tensor, Tensor], sigmas: tuple
) -> Quantities:
    """Yield value and gradients of a loss, which `ours` and `theirs` make, for each sigma."""
    sides = []
    for make, sigma in ((ours, "likelihood.sigma"), (theirs, "noise_sigma")):
        losses = [make(start) for start in sigmas]
        sides.append([stepped(loss, *rows, attrgetter(sigma)(loss)) for loss in losses])
    for index, what in enumerate(("value", "gradient to pred", "gradient to sigma")):
        yield title.format(what), *([step[index] for step in side] for side in sides)


def smoothing(name: str, experiment: str, theirs: Any, epoch: Callable) -> Quantities:
    """Yield FDS side by side: kernel, statistics of a first epoch, and features of the second.

    epoch: seed -> ((features, labels) of ours, of theirs).
    """
    (first, their_first), (second, their_second) = epoch(0), epoch(1)
    width = first[0].shape[1]
    own = targets.make(official(experiment).model.smoothing)(width).train()
    own(*first)
    own.end_epoch()
    theirs.update_running_stats(*their_first, 0)
    theirs.update_last_epoch_stats(1)
    made = theirs.smooth(*(x.clone() for x in their_second), 1)
    if made.ndim == 4:
        made = made.permute(0, 2, 3, 1).reshape(-1, width)
    if "gaps" not in name:
        known = [theirs.running_mean, theirs.running_var]
        smoothed = [theirs.smoothed_mean_last_epoch, theirs.smoothed_var_last_epoch]
        yield f"FDS of {name}: kernel", own.kernel, theirs.kernel_window
        yield f"FDS of {name}: mean and variance of the bins", [own.mean, own.var], known
        yield f"FDS of {name}: smoothed statistics", [own.smooth_mean, own.smooth_var], smoothed
    yield f"FDS of {name}: smoothed features", own(*second), made


def checkpoint(title: str, path: Path, layout: str, images: Tensor, theirs: Tensor) -> Quantities:
    """Yield the outputs of a checkpoint of theirs, whose numpy scalars have two spellings."""
    old = path.with_name(f"numpy1_{path.name}")
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(old, "w") as after:
        for item in before.infolist():
            content = before.read(item)
            if item.filename.endswith("data.pkl"):
                content = content.replace(b"numpy._core", b"numpy.core")
            after.writestr(item, content)
    for name, file in (("today's numpy", path), ("numpy 1", old)):
        with torch.no_grad():
            yield f"{title}, {name}", released.load(file, layout)(images), theirs


def settings(part: str, theirs: Mapping) -> Any:
    """Return the settings of quantities.yaml in our config and in theirs."""
    rule, other = RULES["settings"][part], OmegaConf.create(dict(theirs))
    own, keys = official(rule["experiment"]), rule["names"].values()
    sides = [[OmegaConf.select(c, key[i]) for key in keys] for i, c in enumerate((own, other))]
    return f"{rule['title']}: {', '.join(rule['names'])}", *sides
