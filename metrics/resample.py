"""How far a report moves with the draw of its test samples: the bootstrap.

A report is made of bin sums (see report.py), and those are sums over samples. So a test set drawn
again with replacement, in which sample i occurs w_i times, has the bin sums

    n_b = sum_i w_i n_ib,    S_b = sum_i w_i S_ib,

and R such draws are one matrix product. Two models are compared on the same draws: the weights
depend on the number of samples and on the seed alone.

Shapes: N samples (images, people), B label bins, M measures, E mesh errors, R draws.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .groups import REGIONS, TAILS, rarest, rarity_regions, shot_members


@dataclass(frozen=True)
class Column:
    """A key of a report: which of the M measures, over which bins, averaged how."""

    measure: int
    bins: Tensor  # (B,) bool
    balanced: bool
    undo: Callable[[Tensor], Tensor] = torch.clone  # after the mean: the identity


def draws(samples: int, number: int, seed: int = 0) -> Tensor:
    """(R, N) how often each sample occurs in each draw; the rows sum to N."""
    counts = np.random.default_rng(seed).multinomial(samples, np.full(samples, 1 / samples), number)
    return torch.from_numpy(counts).double()


def resampled(sums: Tensor, columns: dict[str, Column], weights: Tensor) -> dict[str, Tensor]:
    """(N, 1 + M, B), the columns of the report, (R, N) -> each column on each draw, (R,).

    A group that a draw leaves empty is NaN there.
    """
    totals = torch.einsum("rn,nmb->mrb", weights, sums)  # (1 + M, R, B)
    values = {}
    for key, column in columns.items():
        count, total = totals[0][:, column.bins], totals[1 + column.measure][:, column.bins]
        if column.balanced:
            means = torch.where(count > 0, column.undo(total / count), 0)
            values[key] = means.sum(-1) / (count > 0).sum(-1)
        else:
            values[key] = column.undo(total.sum(-1) / count.sum(-1))
    return values


def binned_columns(shots: Tensor, measures: Sequence[Any]) -> dict[str, Column]:
    """The columns of `finalise`: {"mae", "mae_many", ..., "bmae", "bmae_many", ...}."""
    return {
        f"{'b' * balanced}{measure.name}{suffix}": Column(i, members, balanced, measure.undo)
        for i, measure in enumerate(measures)
        for balanced in ((False, True) if measure.balanced else (False,))
        for suffix, members in shot_members(shots).items()
    }


def mesh_sums(rows: Tensor, names: Sequence[str]) -> tuple[Tensor, dict[str, Column]]:
    """(N, 1 + E) rarity and errors -> (N, 1 + E, B) and the columns of `finalise_mesh`.

    The bins are the regions, and one more for each tail. Regions and tails are those of the test
    set as it is: a draw changes how often a person occurs, not how rare the person is.
    """
    rarity, *errors = rows.T
    size = REGIONS + len(TAILS)
    member = torch.zeros(len(rarity), size, dtype=torch.float64)
    member[torch.arange(len(rarity)), rarity_regions(rarity)] = 1
    for i, percent in enumerate(TAILS):
        member[rarest(rarity, percent), REGIONS + i] = 1
    sums = torch.stack([member, *(error[:, None] * member for error in errors)], 1)
    group = torch.arange(size)
    columns = {}
    for i, name in enumerate(names):
        columns[name] = Column(i, group < REGIONS, balanced=False)
        columns[f"b{name}"] = Column(i, group < REGIONS, balanced=True)
        for k, percent in enumerate(TAILS):
            columns[f"b{name}_tail{percent}"] = Column(i, group == REGIONS + k, balanced=False)
    return sums, columns
