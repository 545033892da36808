"""Reports from bin sums as torchmetrics: they accumulate over batches and ranks, each sample once.

Besides `update` and `compute`, each class has
    names_reported()           the keys of its report
    samples(*batch)            (n, ...) the share of each sample of a batch, as `resample` takes it
    resample(samples, weights) (N, ...), (R, N) -> {key: (R,)}, the report on bootstrap replicates

Shapes: n samples of a batch, N of all batches, B label bins, M measures, R replicates.
"""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from .errors import Array
from .groups import SUFFIXES, age_shots, depth_shots
from .report import AGE, DEPTH, Binned, Report, as_floats, bin_sums, shot_averages


class BinnedMetrics(Metric):
    """Bin sums of all batches: state (1 + M, B), independent of the size of the test set."""

    full_state_update = False
    kind: Binned
    totals: Tensor
    shots: Tensor

    def __init__(self, shots: Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        zeros = torch.zeros(1 + len(self.kind.measures), len(shots), dtype=torch.float64)
        self.register_buffer("shots", shots, persistent=False)
        self.add_state("totals", default=zeros, dist_reduce_fx="sum")

    def update(self, pred: Array, target: Array, mask: Array | None = None) -> None:
        """Add a batch, which may be empty."""
        self.totals = self.totals + bin_sums(self.kind, pred, target, mask).to(self.totals.device)

    def compute(self) -> Report:
        report = shot_averages(self.totals, self.shots, self.kind.measures)
        return as_floats(report, self.totals[0].sum())

    @classmethod
    def names_reported(cls) -> list[str]:
        return [
            f"{prefix}{measure.name}{suffix}"
            for measure in cls.kind.measures
            for prefix in ("", "b")[: 1 + measure.balanced]
            for suffix in SUFFIXES
        ]

    def samples(self, pred: Array, target: Array, mask: Array | None = None) -> Tensor:
        return bin_sums(self.kind, pred, target, mask, per_sample=True)

    def resample(self, samples: Tensor, weights: Tensor) -> dict[str, Tensor]:
        totals = torch.einsum("rn,nmb->mrb", weights, samples)
        return shot_averages(totals, self.shots.cpu(), self.kind.measures)


class AgeMetrics(BinnedMetrics):
    """`age_report` over batches: update(pred (n, 1), target (n, 1)), then compute()."""

    kind = AGE

    def __init__(self, train_labels: Array, **kwargs: Any) -> None:
        super().__init__(age_shots(train_labels).cpu(), **kwargs)


class DepthMetrics(BinnedMetrics):
    """`depth_report` over batches: update(pred, target, mask), (n, 1, h, w) each.

    The shots are those of NYUD2-DIR for any training set.
    """

    kind = DEPTH

    def __init__(self, train_labels: Array | None = None, **kwargs: Any) -> None:
        super().__init__(depth_shots(), **kwargs)
