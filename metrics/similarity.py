"""Metrics of STS-B-DIR: MSE, Pearson's and Spearman's correlation, over all pairs and per shot.

Shapes: N pairs, L training labels, B = 50 label bins, R bootstrap replicates.
"""

import torch
from torch import Tensor

from .errors import Array, paired
from .groups import shot_members, similarity_bins, similarity_shots
from .report import Report, as_floats


def similarity_report(pred: Array, target: Array, train_labels: Array) -> Report:
    """{"mse", "mse_many", ..., "pearson", ..., "spearman", ...}: (N,), (N,), (L,)."""
    p, t = (values.cpu() for values in paired(pred, target))
    shots = similarity_shots(train_labels).cpu()
    return as_floats(similarity_averages(p, t, shots, t.new_ones(1, len(t))), len(t))


def similarity_averages(p: Tensor, t: Tensor, shots: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """{key: (R,)} where pair i occurs weights[r, i] times: (N,), (N,), (B,), (R, N).

    A group without pairs is NaN.
    """
    bins, report = similarity_bins(t), {}
    for suffix, members in shot_members(shots).items():
        inside = members[bins]
        a, b, w = p[inside], t[inside], weights[:, inside].double()
        report[f"mse{suffix}"] = w @ (a - b).square() / w.sum(1)
        report[f"pearson{suffix}"] = _correlation(a, b, w)
        report[f"spearman{suffix}"] = _correlation(_ranks(a, w), _ranks(b, w), w)
    return report


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
