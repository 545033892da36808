"""The metrics of STS-B-DIR: MSE, Pearson's and Spearman's correlation, over all pairs and per shot.

N: pairs; L: training labels; B = 50 label bins of 0.1 between 0 and 5.
"""

from typing import Any

import torch
from scipy.stats import rankdata
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from metrics.groups import FEW, MANY, MEDIUM, shot_members
from metrics.inputs import Array, flat, paired
from metrics.report import Report, require_samples

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
    place = torch.searchsorted(edges, score.float().contiguous().cpu(), right=True) - 1
    return place.clamp(max=BINS - 1).to(score.device)


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
    return _report(p.double().cpu(), t.double().cpu(), similarity_shots(train_labels).cpu())


def _report(p: Tensor, t: Tensor, shots: Tensor) -> Report:
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


class SimilarityMetrics(Metric):
    """`similarity_report` over batches: update(pred (n, 1), target (n, 1)), then compute()."""

    full_state_update = False
    rows: list[Tensor]

    def __init__(self, train_labels: Array, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shots = similarity_shots(train_labels).cpu()
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """The type in which torchmetrics gathers from a rank that saw no batch."""
        return torch.float64

    def update(self, pred: Array, target: Array) -> None:
        """Add a batch, which may be empty. Rows are kept flat, as those of `MeshMetrics`."""
        self.rows.append(self.samples(pred, target).flatten().to(self.device))

    def samples(self, pred: Array, target: Array) -> Tensor:
        """(n, 2): prediction and label of each pair."""
        return torch.stack(paired(pred, target), dim=1).double()

    def compute(self) -> Report:
        """What `similarity_report` gives on all pairs seen, each counted once."""
        rows = dim_zero_cat(self.rows) if len(self.rows) else torch.zeros(0)
        p, t = rows.reshape(-1, 2).cpu().T
        return _report(p, t, self.shots)

    def resample(self, samples: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """The report on R draws of the pairs, (N, 2), (R, N) -> {key: (R,)}."""
        draws = []
        for weight in weights:
            rows = samples.repeat_interleave(weight.round().long(), dim=0)
            draws.append(_report(rows[:, 0], rows[:, 1], self.shots))
        return {key: torch.tensor([draw[key] for draw in draws]) for key in draws[0]}
