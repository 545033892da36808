"""The metrics of STS-B-DIR: MSE, Pearson's and Spearman's correlation, over all pairs and per shot.

N: pairs; L: training labels; B = 50 label bins of 0.1 between 0 and 5; R: draws of the pairs.
"""

import torch
from scipy.stats import rankdata
from torch import Tensor

from .groups import FEW, MANY, MEDIUM, shot_members
from .inputs import Array, flat, paired
from .report import Report, require_samples

HIGHEST, BINS = 5.0, 50
MANY_ABOVE, FEW_BELOW = 100, 30  # training pairs of a bin; they give the lists of the released code


def similarity_bins(score: Tensor) -> Tensor:
    """(N,) -> (N,) int64 in 0..49. As in the released code labels and edges are float32: 0.3 lies
    in the bin that it opens or in the one below, as its rounding has it.
    """
    if ((score < 0) | (score > HIGHEST)).any():
        raise ValueError(
            f"similarities must lie in 0..5; got {float(score.min()):g} to {float(score.max()):g}"
        )
    edges = torch.linspace(0, HIGHEST, BINS + 1, dtype=torch.float64).float()
    bins = torch.searchsorted(edges, score.float().contiguous().cpu(), right=True) - 1
    return bins.clamp(max=BINS - 1).to(score.device)


def similarity_shots(train_labels: Array) -> Tensor:
    """Shot of every bin by its training count: (L,) -> (50,) int64."""
    count = torch.bincount(similarity_bins(flat("train_labels", train_labels)), minlength=BINS)
    shots = torch.full_like(count, MEDIUM)
    shots[count > MANY_ABOVE] = MANY
    shots[count < FEW_BELOW] = FEW
    return shots


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's; NaN for fewer than two pairs or for constants."""
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / (a.square().sum() * b.square().sum()).sqrt())


def similarity_report(pred: Array, target: Array, train_labels: Array) -> Report:
    """{"mse", "mse_many", ..., "pearson", ..., "spearman", ...}: (N,), (N,), (L,)."""
    p, t = paired(pred, target)
    return report_on(p.double().cpu(), t.double().cpu(), similarity_shots(train_labels).cpu())


def report_on(p: Tensor, t: Tensor, shots: Tensor) -> Report:
    require_samples(len(t))
    bins = similarity_bins(t)
    report: Report = {}
    for suffix, members in shot_members(shots).items():
        a, b = p[members[bins]], t[members[bins]]
        ranks = (torch.from_numpy(rankdata(each.numpy())) for each in (a, b))
        report[f"mse{suffix}"] = float((a - b).square().mean())
        report[f"pearson{suffix}"] = correlation(a, b)
        report[f"spearman{suffix}"] = correlation(*ranks)
    return report


def report_on_draws(p: Tensor, t: Tensor, shots: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """{key: (R,)} of `report_on` where pair i is there weights[r, i] times: (N,), (N,), (B,),
    (R, N). A group without pairs has NaN.
    """
    bins, report = similarity_bins(t), {}
    for suffix, members in shot_members(shots).items():
        rows = members[bins]
        a, b, w = p[rows], t[rows], weights[:, rows].double()
        report[f"mse{suffix}"] = w @ (a - b).square() / w.sum(1)
        report[f"pearson{suffix}"] = _correlations(a, b, w)
        report[f"spearman{suffix}"] = _correlations(_ranks(a, w), _ranks(b, w), w)
    return report


def _correlations(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """(R,) Pearson's, of (N,) or (R, N) values with weights (R, N)."""
    a, b = (each - ((w * each).sum(1) / w.sum(1))[:, None] for each in (a, b))
    variances = (w * a.square()).sum(1) * (w * b.square()).sum(1)
    return (w * a * b).sum(1) / variances.sqrt()


def _ranks(values: Tensor, w: Tensor) -> Tensor:
    """(R, N) the mean rank of each value among all, each there as often as its weight says."""
    distinct, place = values.unique(return_inverse=True)
    count = torch.zeros(len(w), len(distinct), dtype=w.dtype).index_add(1, place, w)
    return (count.cumsum(1) - (count - 1) / 2)[:, place]
