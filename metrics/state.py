"""The reports as torchmetrics: they add up over batches and over ranks, each sample once.

Shapes: n samples of a batch, B label bins, M measures.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from .groups import DEPTH_BINS, MAX_AGE, age_bins, age_shots, depth_bins, depth_shots
from .inputs import Array, paired
from .report import (
    AGE,
    DEPTH,
    MESH,
    Measure,
    Report,
    age_totals,
    depth_totals,
    finalise,
    finalise_mesh,
    mesh_rows,
    sample_sums,
)
from .resample import binned_columns, mesh_sums, resampled
from .similarity import BINS, HIGHEST, report_on, report_on_draws, similarity_shots


class BinnedMetrics(Metric):
    """Bin sums over batches and ranks: state (1 + M, B), whatever the size of the test set."""

    full_state_update = False
    columns: tuple[Measure, ...] = ()  # of the report
    totals: Tensor
    shots: Tensor

    def __init__(self, shots: Tensor, measures: Sequence[Measure], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.measures = measures
        zeros = torch.zeros(1 + len(measures), len(shots), dtype=torch.float64)
        self.register_buffer("shots", shots, persistent=False)
        self.add_state("totals", default=zeros, dist_reduce_fx="sum")

    def compute(self) -> Report:
        """What the functional report gives on all samples seen, each counted once."""
        return finalise(self.totals, self.shots, self.measures)

    @classmethod
    def names_reported(cls) -> list[str]:
        """The keys of the report, known before there is one."""
        one = torch.ones(1 + len(cls.columns), 1, dtype=torch.float64)
        return list(finalise(one, torch.zeros(1, dtype=torch.long), cls.columns))

    def resample(self, samples: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """The report on R draws of the samples, (N, 1 + M, B), (R, N) -> {key: (R,)}."""
        return resampled(samples, binned_columns(self.shots.cpu(), self.measures), weights)


class AgeMetrics(BinnedMetrics):
    """`age_report` over batches: update(pred (n, 1), target (n, 1)), then compute()."""

    columns = AGE

    def __init__(self, train_labels: Array, **kwargs: Any) -> None:
        super().__init__(age_shots(train_labels).cpu(), AGE, **kwargs)

    def update(self, pred: Array, target: Array) -> None:
        """Add a batch, which may be empty."""
        self.totals = self.totals + age_totals(pred, target).to(self.totals.device)

    def samples(self, pred: Array, target: Array) -> Tensor:
        """What each sample of a batch adds, (n, 1 + M, B): what `resample` draws from."""
        p, t = paired(pred, target)
        each = torch.arange(len(t), device=t.device)
        return sample_sums(p, t, each, age_bins(t), (len(t), MAX_AGE + 1), AGE)


class DepthMetrics(BinnedMetrics):
    """`depth_report` over batches: update(pred, target, mask), (n, 1, h, w) each."""

    columns = DEPTH

    def __init__(self, train_labels: Array | None = None, **kwargs: Any) -> None:
        """The shots are those of NYUD2-DIR, whatever is trained on."""
        super().__init__(depth_shots(), DEPTH, **kwargs)

    def update(self, pred: Array, target: Array, mask: Array | None = None) -> None:
        """Add a batch, whose mask may leave nothing."""
        self.totals = self.totals + depth_totals(pred, target, mask).to(self.totals.device)

    def samples(self, pred: Array, target: Array, mask: Array | None = None) -> Tensor:
        """What each map of a batch adds, (n, 1 + M, B): what `resample` draws from."""
        p, t = paired(pred, target, mask)
        shape = torch.as_tensor(target).shape
        each = torch.arange(shape[0])[:, None].expand(shape[0], math.prod(shape[1:])).flatten()
        kept = each if mask is None else each[torch.as_tensor(mask).flatten().cpu() != 0]
        return sample_sums(p, t, kept.to(t.device), depth_bins(t), (shape[0], DEPTH_BINS), DEPTH)


class MeshMetrics(Metric):
    """`mesh_report` over batches: every row is kept, as regions need the smallest and largest."""

    full_state_update = False
    rows: list[Tensor]

    def __init__(self, names: Sequence[str] = MESH, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.names = tuple(names)
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    @classmethod
    def names_reported(cls) -> list[str]:
        """The keys of the report, known before there is one."""
        one = torch.ones(1, 1 + len(MESH), dtype=torch.float64)
        return list(finalise_mesh(one, MESH))

    @property
    def dtype(self) -> torch.dtype:
        """The type in which torchmetrics gathers from a rank that saw no batch."""
        return torch.float64

    def update(self, errors: Mapping[str, Array], rarity: Array) -> None:
        """Add a batch: {name: (n,)}, (n,).

        Rows are kept flat: a rank that saw no batch gathers a tensor of one axis.
        """
        self.rows.append(mesh_rows(errors, rarity, self.names).flatten().to(self.device))

    def compute(self) -> Report:
        """What `mesh_report` gives on all samples seen, each counted once."""
        rows = dim_zero_cat(self.rows) if len(self.rows) else torch.zeros(0)
        return finalise_mesh(rows.reshape(-1, 1 + len(self.names)), self.names)

    def samples(self, errors: Mapping[str, Array], rarity: Array) -> Tensor:
        """The rows of a batch, (n, 1 + E): what `resample` draws from."""
        return mesh_rows(errors, rarity, self.names)

    def resample(self, samples: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """The report on R draws of the samples, (N, 1 + E), (R, N) -> {key: (R,)}."""
        return resampled(*mesh_sums(samples, self.names), weights)


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

    @classmethod
    def names_reported(cls) -> list[str]:
        """The keys of the report, known before there is one."""
        ends = torch.tensor([0.0, HIGHEST], dtype=torch.float64)
        return list(report_on(ends, ends, torch.zeros(BINS, dtype=torch.long)))

    def samples(self, pred: Array, target: Array) -> Tensor:
        """(n, 2): prediction and label of each pair."""
        return torch.stack(paired(pred, target), dim=1).double()

    def compute(self) -> Report:
        """What `similarity_report` gives on all pairs seen, each counted once."""
        rows = dim_zero_cat(self.rows) if len(self.rows) else torch.zeros(0)
        p, t = rows.reshape(-1, 2).cpu().T
        return report_on(p, t, self.shots)

    def resample(self, samples: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """The report on R draws of the pairs, (N, 2), (R, N) -> {key: (R,)}."""
        p, t = samples.cpu().T
        return report_on_draws(p, t, self.shots, weights.cpu())
