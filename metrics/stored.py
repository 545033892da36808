"""Reports that need all samples at once (regions of rarity, ranks) as torchmetrics.

They have the methods of metrics/binned.py.

Shapes: n samples of a batch, N of all batches, R bootstrap replicates.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from .errors import Array, paired
from .groups import SUFFIXES, TAILS, similarity_shots
from .report import MESH, Report, as_floats, mesh_averages, mesh_rows
from .similarity import similarity_averages


class SampleMetrics(Metric):
    """Stores `width` numbers of each sample.

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
        return mesh_rows(errors, rarity, self.names)

    def resample(self, samples: Tensor, weights: Tensor) -> dict[str, Tensor]:
        return mesh_averages(samples, self.names, weights)


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
