"""Feature distribution smoothing in the released code, of ages and of depths.

F: feature width; B: label bins.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.cli import targets
from engine.runs.run import composed
from scripts.released import age, depth
from scripts.released.lines import Lines

WIDTH = 6


def compare(lines: Lines, name: str, theirs: Any, own: Any, clone: Any, epochs: list) -> None:
    """Kernel, statistics of a first epoch, and features of the second.

    epochs: two of {"ours", "theirs"}: features and labels, as each takes them.
    """
    lines.add(f"FDS of {name}: kernel", own.kernel, theirs.kernel_window, 1e-6)
    own.train()
    own(*epochs[0]["ours"])
    own.end_epoch()
    with clone.running():
        theirs.update_running_stats(*epochs[0]["theirs"], 0)
        theirs.update_last_epoch_stats(1)
        made = theirs.smooth(*(x.clone() for x in epochs[1]["theirs"]), 1)
    found = [own.mean, own.var], [own.smooth_mean, own.smooth_var]
    known = [theirs.running_mean, theirs.running_var]
    lines.add(f"FDS of {name}: mean and variance of the bins", found[0], known, 1e-5)
    known = [theirs.smoothed_mean_last_epoch, theirs.smoothed_var_last_epoch]
    lines.add(f"FDS of {name}: smoothed statistics", found[1], known, 1e-5)
    if made.ndim == 4:
        made = made.permute(0, 2, 3, 1).reshape(-1, WIDTH)
    lines.add(f"FDS of {name}: smoothed features", own(*epochs[1]["ours"]), made, 1e-5)


def of_ages(root: Path | None, work: Path, lines: Lines) -> None:
    """Ages 0 to 99, all of them; and what becomes of it where some are missing."""
    clone = age.open_clone(root)
    module = clone.load("fds")
    cfg = composed("train", ["experiment=imdb_wiki/fds", "preset=official"])
    smoothed = []
    for gaps in (False, True):
        epochs = []
        for seed in (0, 1):
            labels = torch.arange(6000).float() % 100
            labels = torch.from_numpy(age.ages(6000, 98, seed)).float() if gaps else labels
            features = torch.randn(6000, WIDTH, generator=torch.Generator().manual_seed(seed))
            features = features * (1 + labels[:, None] / 50) + labels[:, None] / 20
            column = labels[:, None] if seed else labels  # as each of their methods wants it
            epochs.append({"ours": (features, labels[:, None]), "theirs": (features, column)})
        with clone.running():
            theirs = module.FDS(WIDTH, 100, 0, kernel="gaussian", ks=5, sigma=2)
        own = targets.make(cfg.model.smoothing)(WIDTH)
        if not gaps:
            compare(lines, "ages", theirs, own, clone, epochs)
            continue
        own(*epochs[0]["ours"])
        own.end_epoch()
        with clone.running():
            theirs.update_running_stats(*epochs[0]["theirs"], 0)
            theirs.update_last_epoch_stats(1)
            smoothed = theirs.smooth(*(x.clone() for x in epochs[1]["theirs"]), 1)
        lines.add(
            "FDS of ages with gaps: smoothed features",
            own(*epochs[1]["ours"]),
            smoothed,
            1e-5,
            deviation="FDS",
            bound=0.5,
        )


def of_depths(root: Path | None, work: Path, lines: Lines) -> None:
    """Depths from 0.7 m to 10 m."""
    clone = depth.open_clone(root)
    theirs = clone.load("models.fds")
    cfg = composed("train", ["experiment=nyud2/fds", "preset=official"])
    own = targets.make(cfg.model.smoothing)(WIDTH)
    epochs = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        levels = rng.integers(18, 256, (2, 1, 60, 80))  # of 8 bits, as training depths are
        labels = torch.from_numpy(levels).float() / 255 * 10
        features = torch.from_numpy(rng.standard_normal((2, WIDTH, 60, 80))).float()
        features = features * (1 + labels / 5) + labels / 2
        flat = features.permute(0, 2, 3, 1).reshape(-1, WIDTH)
        epochs.append({"ours": (flat, labels.reshape(-1, 1)), "theirs": (features, labels)})
    with clone.running():
        made = theirs.FDS(WIDTH, 100, 7, kernel="gaussian", ks=5, sigma=2)
    compare(lines, "depths", made, own, clone, epochs)


CHECKS = (of_ages, of_depths)
