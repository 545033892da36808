"""Feature distribution smoothing in the released code, of ages and of depths."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.cli import targets
from scripts.released.clones import Clone
from scripts.released.inputs import Quantities, ages, official

WIDTH = 6


def compare(name: str, experiment: str, theirs: Any, epoch: Callable) -> Quantities:
    """Yield kernel, statistics of a first epoch, and features of the second.

    epoch: seed -> ((features, labels) of ours, of theirs).
    """
    own = targets.make(official(experiment).model.smoothing)(WIDTH).train()
    (first, their_first), (second, their_second) = epoch(0), epoch(1)
    own(*first)
    own.end_epoch()
    theirs.update_running_stats(*their_first, 0)
    theirs.update_last_epoch_stats(1)
    made = theirs.smooth(*(x.clone() for x in their_second), 1)
    if made.ndim == 4:
        made = made.permute(0, 2, 3, 1).reshape(-1, WIDTH)
    if "gaps" not in name:
        known = [theirs.running_mean, theirs.running_var]
        smoothed = [theirs.smoothed_mean_last_epoch, theirs.smoothed_var_last_epoch]
        yield f"FDS of {name}: kernel", own.kernel, theirs.kernel_window
        yield f"FDS of {name}: mean and variance of the bins", [own.mean, own.var], known
        yield f"FDS of {name}: smoothed statistics", [own.smooth_mean, own.smooth_var], smoothed
    yield f"FDS of {name}: smoothed features", own(*second), made


def of_ages(root: Path, work: Path) -> Quantities:
    """All ages from 0 to 99, and ages of which some are missing."""
    module = Clone(root, "imdb-wiki-dir").load("fds")
    for name in ("ages", "ages with gaps"):

        def epoch(seed: int, gaps: bool = name != "ages") -> tuple:
            labels = torch.arange(6000).float() % 100
            labels = torch.from_numpy(ages(6000, 98, seed)).float() if gaps else labels
            features = torch.randn(6000, WIDTH, generator=torch.Generator().manual_seed(seed))
            features = features * (1 + labels[:, None] / 50) + labels[:, None] / 20
            column = labels[:, None]
            return (features, column), (features, column if seed else labels)

        theirs = module.FDS(WIDTH, 100, 0, kernel="gaussian", ks=5, sigma=2)
        yield from compare(name, "imdb_wiki/fds", theirs, epoch)


def of_depths(root: Path, work: Path) -> Quantities:
    """Depths from 0.7 m to 10 m."""

    def epoch(seed: int) -> tuple:
        rng = np.random.default_rng(seed)
        levels = rng.integers(18, 256, (2, 1, 60, 80))  # of 8 bits, as training depths are
        labels = torch.from_numpy(levels).float() / 255 * 10
        features = torch.from_numpy(rng.standard_normal((2, WIDTH, 60, 80))).float()
        features = features * (1 + labels / 5) + labels / 2
        flat = features.permute(0, 2, 3, 1).reshape(-1, WIDTH)
        return (flat, labels.reshape(-1, 1)), (features, labels)

    module = Clone(root, "nyud2-dir").load("models.fds")
    theirs = module.FDS(WIDTH, 100, 7, kernel="gaussian", ks=5, sigma=2)
    yield from compare("depths", "nyud2/fds", theirs, epoch)
