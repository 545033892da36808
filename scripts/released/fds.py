"""Feature distribution smoothing in the released code, of ages and of depths.

F: feature width; B: label bins.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate

from engine.run import composed
from scripts.released import age, depth
from scripts.released.lines import Lines

WIDTH = 6
LISTED: dict[str, Any] = {}


def compare(
    lines: Lines, name: str, theirs: Any, own: Any, clone: Any, rows: list, other: list, first: int
) -> None:
    """Kernel, statistics of a first epoch, and features of the second.

    rows, other: two epochs of (features, labels), as ours and theirs take them.
    """
    lines.add(f"FDS of {name}: kernel", own.kernel, theirs.kernel_window, 1e-6, **LISTED)
    own.train()
    own(*rows[0])
    own.end_epoch()
    with clone.running():
        theirs.update_running_stats(*other[0], 0)
        theirs.update_last_epoch_stats(1)
        made = theirs.smooth(*(x.clone() for x in other[1]), 1)
    bins = slice(first, first + len(theirs.running_mean))
    found = own.mean[bins], own.var[bins], own.smooth_mean[bins], own.smooth_var[bins]
    seen = theirs.num_samples_tracked > 1
    told = theirs.running_mean, theirs.running_var
    pairs = [(a[: len(seen)][seen], b[seen]) for a, b in zip(found[:2], told, strict=True)]
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    lines.add(f"FDS of {name}: mean and variance of the bins", sides[0], sides[1], 1e-4)
    told = theirs.smoothed_mean_last_epoch, theirs.smoothed_var_last_epoch
    pairs = [(a[: len(seen)][seen], b[seen]) for a, b in zip(found[2:], told, strict=True)]
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    lines.add(f"FDS of {name}: smoothed statistics", sides[0], sides[1], 1e-4, **LISTED)
    if made.ndim == 4:
        made = made.permute(0, 2, 3, 1).reshape(-1, WIDTH)
    lines.add(f"FDS of {name}: smoothed features", own(*rows[1]), made, 1e-4, **LISTED)


def of_ages(root: Path | None, work: Path, lines: Lines) -> None:
    """Ages 0 to 99."""
    clone = age.open_clone(root)
    theirs = clone.load("fds")
    cfg = composed("train", ["experiment=imdb_wiki/fds", "preset=official"])
    own = instantiate(cfg.model.smoothing)(WIDTH)
    rows, other = [], []
    for seed in (0, 1):
        labels = torch.from_numpy(age.ages(6000, oldest=98, seed=seed)).float()
        features = torch.randn(6000, WIDTH, generator=torch.Generator().manual_seed(seed))
        features = features * (1 + labels[:, None] / 50) + labels[:, None] / 20
        rows.append((features, labels[:, None]))
        other.append((features, labels[:, None] if seed else labels))
    with clone.running():
        made = theirs.FDS(WIDTH, bucket_num=100, bucket_start=0, kernel="gaussian", ks=5, sigma=2)
    compare(lines, "ages", made, own, clone, rows, other, 0)


def of_depths(root: Path | None, work: Path, lines: Lines) -> None:
    """Depths from 0.7 m to 10 m."""
    clone = depth.open_clone(root)
    theirs = clone.load("models.fds")
    cfg = composed("train", ["experiment=nyud2/fds", "preset=official"])
    own = instantiate(cfg.model.smoothing)(WIDTH)
    rows, other = [], []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        labels = torch.from_numpy(0.7 + 9.2 * rng.random((2, 1, 60, 80)) ** 2).float()
        features = torch.from_numpy(rng.standard_normal((2, WIDTH, 60, 80))).float()
        features = features * (1 + labels / 5) + labels / 2
        flat = features.permute(0, 2, 3, 1).reshape(-1, WIDTH)
        rows.append((flat, labels.reshape(-1, 1)))
        other.append((features, labels))
    with clone.running():
        made = theirs.FDS(WIDTH, bucket_num=100, bucket_start=7, kernel="gaussian", ks=5, sigma=2)
    compare(lines, "depths", made, own, clone, rows, other, 0)


CHECKS = (of_ages, of_depths)
