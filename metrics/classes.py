"""Reports as torchmetrics: they accumulate over batches and ranks, each sample once.

Besides `update` and `compute`, each class has
    names_reported()           the keys of its report
    samples(*batch)            (n, ...) the share of each sample of a batch, as `resample` takes it
    resample(samples, weights) (N, ...), (R, N) -> {key: (R,)}, the report on bootstrap replicates

Shapes: n samples of a batch, N of all batches, B label bins, M measures, R replicates.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from . import report
from .balanced import BALANCED, RANGES, by_range
from .errors import Array, paired
from .groups import SUFFIXES, TAILS, similarity_shots
from .report import AGE, DEPTH, MESH, Binned, Measure, Report, as_floats
from .similarity import similarity_averages


class BinnedMetrics(Metric):
    """Bin sums of all batches: state (1 + M, B), independent of the size of the test set."""

    full_state_update = False
    measures: Sequence[Measure]
    totals: Tensor

    def __init__(self, kind: Binned, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        zeros = torch.zeros(1 + len(kind.measures), len(kind.shots), dtype=torch.float64)
        self.add_state("totals", default=zeros, dist_reduce_fx="sum")

    def update(self, pred: Array, target: Array, mask: Array | None = None) -> None:
        """Add a batch, which may be empty."""
        sums = report.bin_sums(self.kind, pred, target, mask)
        self.totals = self.totals + sums.to(self.totals.device)

    def compute(self) -> Report:
        return as_floats(report.shot_averages(self.totals, self.kind), self.totals[0].sum())

    @classmethod
    def names_reported(cls) -> list[str]:
        return [key for key, *_ in report.columns(cls.measures)]

    def samples(self, pred: Array, target: Array, mask: Array | None = None) -> Tensor:
        return report.bin_sums(self.kind, pred, target, mask, per_sample=True)

    def resample(self, samples: Tensor, weights: Tensor) -> dict[str, Tensor]:
        return report.shot_averages(torch.einsum("rn,nmb->mrb", weights, samples), self.kind)


class AgeMetrics(BinnedMetrics):
    """`age_report` over batches: update(pred (n, 1), target (n, 1)), then compute()."""

    measures = AGE

    def __init__(self, train_labels: Array, **kwargs: Any) -> None:
        super().__init__(report.by_age(train_labels), **kwargs)


class DepthMetrics(BinnedMetrics):
    """`depth_report` over batches: update(pred, target, mask), (n, 1, h, w) each.

    The shots are those of NYUD2-DIR for any training set.
    """

    measures = DEPTH

    def __init__(self, train_labels: Array | None = None, **kwargs: Any) -> None:
        super().__init__(report.by_depth(), **kwargs)


class BalancedMetrics(BinnedMetrics):
    """`balanced_report` over batches: update(pred (n, 1), target (n, 1)), then compute()."""

    measures = BALANCED

    def __init__(self, train_labels: Array, ranges: int = RANGES, **kwargs: Any) -> None:
        super().__init__(by_range(train_labels, ranges), **kwargs)


class SampleMetrics(Metric):
    """Stores `width` numbers of each sample, for reports that need all samples at once.

    The state is flat because torchmetrics gathers a 1-D tensor from a rank without batches.
    """

    full_state_update = False
    width: int
    rows: list[Tensor]
    samples: Callable[..., Tensor]
    resample: Callable[[Tensor, Tensor], dict[str, Tensor]]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """The type that torchmetrics gathers from a rank without batches."""
        return torch.float64

    def update(self, *batch: Any) -> None:
        """Add a batch, which may be empty."""
        self.rows.append(self.samples(*batch).flatten().to(self.device))

    def compute(self) -> Report:
        flat = dim_zero_cat(self.rows) if len(self.rows) else torch.zeros(0, dtype=self.dtype)
        rows = flat.reshape(-1, self.width)
        return as_floats(self.resample(rows, rows.new_ones(1, len(rows))), len(rows))


class MeshMetrics(SampleMetrics):
    """`mesh_report` over batches: update({name: (n,)}, rarity (n,)), then compute()."""

    def __init__(self, names: Sequence[str] = MESH, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.names, self.width = tuple(names), 1 + len(names)

    @classmethod
    def names_reported(cls) -> list[str]:
        tails = [f"_tail{percent}" for percent in TAILS]
        return [key for name in MESH for key in (name, *(f"b{name}{s}" for s in ("", *tails)))]

    def samples(self, errors: Mapping[str, Array], rarity: Array) -> Tensor:
        return report.mesh_rows(errors, rarity, self.names)

    def resample(self, samples: Tensor, weights: Tensor) -> dict[str, Tensor]:
        return report.mesh_averages(samples, self.names, weights)


class SimilarityMetrics(SampleMetrics):
    """`similarity_report` over batches: update(pred (n, 1), target (n, 1)), then compute()."""

    width = 2

    def __init__(self, train_labels: Array, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shots = similarity_shots(train_labels).cpu()

    @classmethod
    def names_reported(cls) -> list[str]:
        return [f"{name}{suffix}" for suffix in SUFFIXES for name in ("mse", "pearson", "spearman")]

    def samples(self, pred: Array, target: Array) -> Tensor:
        return torch.stack(paired(pred, target), dim=1)

    def resample(self, samples: Tensor, weights: Tensor) -> dict[str, Tensor]:
        p, t = samples.cpu().T
        return similarity_averages(p, t, self.shots, weights.cpu())
