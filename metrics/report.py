"""Averages and reports: a metric is error x grouping x average.

    plain      g( sum_b S_b / sum_b n_b )          over the bins b of a group
    balanced   mean_b g( S_b / n_b )               over its bins with n_b > 0

S_b is the sum of a per-sample error in label bin b, n_b its number of samples, and g undoes what
the error did (square root for RMSE, exp for the geometric mean). So the bin sums are all that a
report needs: they have a fixed size, and add up over batches and over ranks. A group without
samples is NaN.

Shapes: N samples (or pixels), B label bins, M measures, E mesh errors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from . import errors as e
from .groups import (
    DEPTH_BINS,
    MAX_AGE,
    REGIONS,
    TAILS,
    age_bins,
    age_shots,
    depth_bins,
    depth_shots,
    rarest,
    rarity_regions,
    shot_members,
)
from .inputs import Array, flat, paired, require_same_shape

Report = dict[str, float]


def identity(mean: Tensor) -> Tensor:
    """x"""
    return mean


@dataclass(frozen=True)
class Measure:
    """A column of a report: its key, its per-sample error, and g, applied after the mean."""

    name: str
    error: Callable[[Tensor, Tensor], Tensor]
    undo: Callable[[Tensor], Tensor] = identity
    balanced: bool = True


AGE = (
    Measure("mae", e.absolute),
    Measure("mse", e.squared),
    # Over samples only: the public code's "balanced" geometric mean is the plain one again.
    Measure("gm", e.log_absolute, undo=torch.exp, balanced=False),
)
DEPTH = (
    Measure("rmse", e.squared, undo=torch.sqrt),
    Measure("mse", e.squared),
    Measure("mae", e.absolute),
    Measure("abs_rel", e.relative),
    Measure("log10", e.log10),
    *(Measure(f"delta{k}", partial(e.within_ratio, power=k)) for k in (1, 2, 3)),
)
MESH = ("mpvpe", "mpjpe", "pa_mpjpe")


def plain(total: Tensor, count: Tensor, undo: Callable[[Tensor], Tensor] = identity) -> Tensor:
    """g( sum_b S_b / sum_b n_b ): (B,), (B,) -> ()."""
    return undo(total.sum() / count.sum())


def balanced(total: Tensor, count: Tensor, undo: Callable[[Tensor], Tensor] = identity) -> Tensor:
    """mean_b g( S_b / n_b ) over bins with n_b > 0: (B,), (B,) -> ()."""
    seen = count > 0
    return undo(total[seen] / count[seen]).mean()


def bin_sums(values: Tensor, bins: Tensor, size: int) -> Tensor:
    """S_b = sum of the values in bin b: (N,), (N,) -> (B,)."""
    return values.new_zeros(size).index_add(0, bins, values)


def accumulate(
    pred: Tensor, target: Tensor, bins: Tensor, size: int, measures: Sequence[Measure]
) -> Tensor:
    """(N,), (N,), (N,) -> (1 + M, B): the counts n_b, then S_b of each measure."""
    count = bin_sums(torch.ones_like(target), bins, size)
    sums = [bin_sums(measure.error(pred, target), bins, size) for measure in measures]
    return torch.stack([count, *sums])


def sample_sums(
    pred: Tensor, target: Tensor, sample: Tensor, bins: Tensor, sizes: tuple[int, int], measures
) -> Tensor:
    """The same for each sample alone, which may have several labels (pixels).

    (n,) labels, each of a sample and in a bin; sizes = (N, B) -> (N, 1 + M, B).
    """
    samples, size = sizes
    sums = accumulate(pred, target, sample * size + bins, samples * size, measures)
    return sums.unflatten(1, (samples, size)).transpose(0, 1)


def finalise(totals: Tensor, shots: Tensor, measures: Sequence[Measure]) -> Report:
    """(1 + M, B), (B,) -> {"mae", "mae_many", ..., "bmae", "bmae_many", ...}."""
    count, *sums = totals
    require_samples(int(count.sum()))
    groups = shot_members(shots.to(totals.device))
    report = {}
    for measure, total in zip(measures, sums, strict=True):
        averages = {"": plain, "b": balanced} if measure.balanced else {"": plain}
        for prefix, average in averages.items():
            for suffix, members in groups.items():
                value = average(total[members], count[members], measure.undo)
                report[f"{prefix}{measure.name}{suffix}"] = float(value)
    return report


def require_samples(count: int) -> None:
    """A report over nothing is a mistake, though a group of it, or a batch, may well be empty."""
    if count == 0:
        raise ValueError(
            "a report needs at least one sample; got none. Check the split and the mask."
        )


def age_totals(pred: Array, target: Array) -> Tensor:
    """Years (N,) or (N, 1), twice -> (1 + M, 201)."""
    p, t = paired(pred, target)
    return accumulate(p, t, age_bins(t), MAX_AGE + 1, AGE)


def depth_totals(pred: Array, target: Array, mask: Array | None = None) -> Tensor:
    """Metres, any shape, twice, and the pixels to keep -> (1 + M, 100)."""
    p, t = paired(pred, target, mask)
    return accumulate(p, t, depth_bins(t), DEPTH_BINS, DEPTH)


def mesh_rows(errors: Mapping[str, Array], rarity: Array, names: Sequence[str]) -> Tensor:
    """E times (N,), and (N,) -> (N, 1 + E): the rarity, then each named error."""
    if not names or set(errors) != set(names):
        raise ValueError(
            f"mesh errors must be given under {list(names) or 'at least one name'}; "
            f"got {list(errors)}. Name what is measured: MeshMetrics(names=...)."
        )
    columns = [flat("rarity", rarity)]
    for name in names:
        column = flat(name, errors[name]).to(columns[0].device)
        require_same_shape(name, column, "rarity", columns[0])
        columns.append(column)
    return torch.stack(columns, dim=1)


def finalise_mesh(rows: Tensor, names: Sequence[str]) -> Report:
    """(N, 1 + E) -> {"mpvpe", "bmpvpe", "bmpvpe_tail10", "bmpvpe_tail5", ...}.

    b... is balanced over 100 rarity regions; a tail is a plain mean over its samples.
    """
    require_samples(len(rows))
    rarity, *columns = rows.T
    regions = rarity_regions(rarity)
    count = bin_sums(torch.ones_like(rarity), regions, REGIONS)
    report = {}
    for name, error in zip(names, columns, strict=True):
        total = bin_sums(error, regions, REGIONS)
        report[name] = float(plain(total, count))
        report[f"b{name}"] = float(balanced(total, count))
        for percent in TAILS:
            report[f"b{name}_tail{percent}"] = float(error[rarest(rarity, percent)].mean())
    return report


def age_report(pred: Array, target: Array, train_labels: Array) -> Report:
    """MAE, MSE and GM over all ages and per shot, and balanced over ages: (N,), (N,), (L,)."""
    return finalise(age_totals(pred, target), age_shots(train_labels), AGE)


def depth_report(pred: Array, target: Array, mask: Array | None = None) -> Report:
    """RMSE, MSE, MAE, abs-rel, log10, delta1-3 over pixels and per shot, plain and balanced."""
    return finalise(depth_totals(pred, target, mask), depth_shots(), DEPTH)


def mesh_report(errors: Mapping[str, Array], rarity: Array) -> Report:
    """Mean, balanced mean and tail means of each given error: {name: (N,)}, (N,)."""
    names = tuple(errors)
    return finalise_mesh(mesh_rows(errors, rarity, names), names)
