"""Rows of a table: each distinct one once, standardised, some held out, and errors over them.

N: rows; F: inputs; D: label dimensions.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGEST = 1e307  # label whose distance to another one is still a number
RANGES = 10  # equally wide ranges of labels, over which the held-out error is averaged


def distinct(X: NDArray, labels: NDArray, weight: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Each distinct row once, with its total weight: copies of a row cannot be on both sides of a
    split, and their order does not matter.
    """
    rows, place = np.unique(np.hstack([X, labels]), axis=0, return_inverse=True)
    total = np.bincount(place.ravel(), weights=weight)
    rows, total = rows[total > 0], total[total > 0]
    return rows[:, : X.shape[1]].copy(), rows[:, X.shape[1] :].copy(), total


def standard(rows: NDArray, weight: NDArray) -> tuple[NDArray, NDArray]:
    """The weighted mean and standard deviation of each column; 1 for a constant one."""
    unit = np.abs(rows).max(axis=0)
    unit = np.where(unit > 0, unit, 1.0)  # so that no square leaves the numbers
    rows, weight = rows / unit, weight / weight.max()
    center = np.average(rows, axis=0, weights=weight)
    scale = np.sqrt(np.average((rows - center) ** 2, axis=0, weights=weight))
    return center * unit, np.where(scale <= 1e-12, 1.0, scale * unit)


def held_out(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """(N,) which rows are held out: along the sorted labels, one at random out of each few."""
    generator = torch.Generator().manual_seed(seed)
    order = labels[:, 0].argsort(stable=True)
    block = max(2, round(1 / fraction))
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for rows in order.split(block):
        if len(rows) == block:
            held_out[rows[torch.randint(block, (), generator=generator)]] = True
    return held_out


def over_ranges(error: Tensor, labels: Tensor, weight: Tensor) -> float:
    """The mean absolute error within each equally wide range of a label, averaged over ranges."""
    means = []
    for e, y in zip(error.T.abs(), labels.T.contiguous(), strict=True):
        place = torch.bucketize(y, edges(y, RANGES)[1:-1])
        sums, counts = (
            torch.zeros(RANGES, dtype=e.dtype).index_add(0, place, w) for w in (e * weight, weight)
        )
        means.append((sums[counts > 0] / counts[counts > 0]).mean())
    return float(torch.stack(means).mean())


def edges(labels: Tensor, bins: int) -> Tensor:
    return torch.linspace(float(labels.min()), float(labels.max()), bins + 1, dtype=torch.float64)
