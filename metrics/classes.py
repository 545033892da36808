"""Reports as torchmetrics: they accumulate over batches and ranks, each sample once.

Besides `update` and `compute`, each class has
    names_reported             the keys of its report
    samples(*batch)            (n, ...) the row of each sample of a batch, as `resample` takes it
    resample(samples, weights) (N, ...), (R, N) -> {key: (R,)}, the report on bootstrap replicates

Shapes: n samples of a batch, N of all batches, B label bins, M measures, R replicates.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from . import report, similarity
from .balanced import KEYS, RANGES, by_range
from .errors import Array


class ReportMetrics(Metric):
    """Stores a row of numbers for each sample.

    The state is flat because torchmetrics gathers a 1-D tensor from a rank without batches.
    """

    full_state_update = False
    names_reported: Sequence[str]  # of the report
    rows: list[Tensor]

    def __init__(self, kind: report.Kind, *shape: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind, self.shape = kind, shape  # of a row
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """The type that torchmetrics gathers from a rank without batches."""
        return torch.float64

    def samples(self, *batch: Any) -> Tensor:
        return self.kind.samples(*batch)

    def resample(self, samples: Tensor, weights: Tensor) -> report.Averages:
        return self.kind.averages(samples, weights)

    def update(self, *batch: Any) -> None:
        """Add a batch, which may be empty."""
        self.rows.append(self.samples(*batch).flatten().to(self.device))

    def stored(self) -> Tensor:
        """(N, *shape) the rows of all batches."""
        flat = dim_zero_cat(self.rows) if len(self.rows) else torch.zeros(0, dtype=self.dtype)
        return flat.reshape(-1, *self.shape)

    def compute(self) -> report.Report:
        rows = self.stored()
        return report.as_floats(self.resample(rows, rows.new_ones(1, len(rows))))


class AgeMetrics(ReportMetrics):
    """`age_report` over batches: update(pred (n, 1), target (n, 1)), then compute()."""

    names_reported = tuple(key for key, *_ in report.columns(report.AGE))

    def __init__(self, train_labels: Array, **kwargs: Any) -> None:
        super().__init__(report.by_age(train_labels), 2, **kwargs)


class DepthMetrics(ReportMetrics):
    """`depth_report` over batches: update(pred, target, mask), (n, 1, h, w) each.

    The shots are those of NYUD2-DIR for any training set.
    """

    names_reported = tuple(key for key, *_ in report.columns(report.DEPTH))

    def __init__(self, train_labels: Array | None = None, **kwargs: Any) -> None:
        kind = report.by_depth()
        super().__init__(kind, 1 + len(report.DEPTH), len(kind.shots), **kwargs)

    @property
    def totals(self) -> Tensor:
        """(1 + M, B) bin sums of all images."""
        return self.stored().sum(0)


class BalancedMetrics(ReportMetrics):
    """`balanced_report` over batches: update(pred (n, 1), target (n, 1)), then compute()."""

    names_reported = KEYS

    def __init__(self, train_labels: Array, ranges: int = RANGES, **kwargs: Any) -> None:
        super().__init__(by_range(train_labels, ranges), 2, **kwargs)


class MeshMetrics(ReportMetrics):
    """`mesh_report` over batches: update({name: (n,)}, rarity (n,)), then compute()."""

    names_reported = tuple(key for name in report.MESH for key in report.mesh_keys(name))

    def __init__(self, names: Sequence[str] = report.MESH, **kwargs: Any) -> None:
        super().__init__(report.Mesh(tuple(names)), 1 + len(names), **kwargs)


class SimilarityMetrics(ReportMetrics):
    """`similarity_report` over batches: update(pred (n, 1), target (n, 1)), then compute()."""

    names_reported = similarity.KEYS

    def __init__(self, train_labels: Array, **kwargs: Any) -> None:
        super().__init__(similarity.Similarity(train_labels), 2, **kwargs)
