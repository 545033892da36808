"""Metrics of STS-B-DIR: MSE, Pearson's and Spearman's correlation, over all pairs and per shot.

Shapes: N pairs, L training labels, B = 50 label bins, R bootstrap replicates.
"""

import torch
from torch import Tensor

from .errors import Array, labelled
from .groups import SUFFIXES, shot_members, similarity_bins, similarity_shots
from .report import Averages, Report, report

KEYS = [f"{name}{suffix}" for suffix in SUFFIXES for name in ("mse", "pearson", "spearman")]


def similarity_report(pred: Array, target: Array, train_labels: Array) -> Report:
    """{"mse", "mse_many", ..., "pearson", ..., "spearman", ...}: (N,), (N,), (L,)."""
    return report(Similarity(train_labels), pred, target)


class Similarity:
    """Report of similarities. A row is a prediction and its label; a group without pairs is NaN."""

    def __init__(self, train_labels: Array):
        self.shots = similarity_shots(train_labels).cpu()

    def samples(self, pred: Array, target: Array) -> Tensor:
        return labelled(pred, target)

    def averages(self, rows: Tensor, weights: Tensor) -> Averages:
        p, t = rows.cpu().T
        bins, found = similarity_bins(t), {}
        for suffix, members in shot_members(self.shots).items():
            inside = members[bins]
            a, b, w = p[inside], t[inside], weights.cpu()[:, inside].double()
            found[f"mse{suffix}"] = w @ (a - b).square() / w.sum(1)
            found[f"pearson{suffix}"] = _correlation(a, b, w)
            found[f"spearman{suffix}"] = _correlation(_ranks(a, w), _ranks(b, w), w)
        return found


def _correlation(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Pearson's correlation of (N,) or (R, N) values with weights (R, N): (R,).

    NaN for fewer than two pairs or for constants.
    """
    a, b = (each - ((w * each).sum(1) / w.sum(1))[:, None] for each in (a, b))
    variances = (w * a.square()).sum(1) * (w * b.square()).sum(1)
    return (w * a * b).sum(1) / variances.sqrt()


def _ranks(values: Tensor, w: Tensor) -> Tensor:
    """Mean rank of each value where value i occurs w[r, i] times: (N,), (R, N) -> (R, N)."""
    distinct, index = values.unique(return_inverse=True)
    count = torch.zeros(len(w), len(distinct), dtype=w.dtype).index_add(1, index, w)
    return (count.cumsum(1) - (count - 1) / 2)[:, index]
