"""Averages and reports: a metric is error x grouping x average.

    plain      g( sum_b S_b / sum_b n_b )          over the bins b of a group
    balanced   mean_b g( S_b / n_b )               over its bins with n_b > 0

S_b is the sum of a per-sample error in label bin b, n_b the number of samples in it, and g inverts
the transform of the error (square root for RMSE, exp for the geometric mean). A group without
samples is NaN.

A kind of report has `samples`, the row of numbers that it needs of each sample, and `averages` of
rows (N, ...) where sample i occurs weights[r, i] times in bootstrap replicate r: {key: (R,)}.

Shapes: N samples (or pixels), B label bins, M measures, E mesh errors, R replicates.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import errors as e
from . import groups as g
from .errors import Array, flat, labelled, paired, require_same_shape

Report = dict[str, float]
Averages = dict[str, Tensor]  # {key: (R,)}
Kind = Any  # Binned, Maps, Mesh or Similarity


def report(kind: Kind, *batch: Any) -> Report:
    """Report of all samples; none are an error, though a group or a batch may be empty."""
    rows = kind.samples(*batch)
    return as_floats(kind.averages(rows, rows.new_ones(1, len(rows))))


class Measure(NamedTuple):
    """A column of a report: its key, its per-sample error, and g, applied after the mean.

    balanced: also averaged over bins. root_last: a balanced average is g of the mean over bins
    instead of the mean of g. shots: also reported per shot.
    """

    name: str
    error: Callable[[Tensor, Tensor], Tensor]
    undo: Callable[[Tensor], Tensor] = torch.clone  # the identity
    balanced: bool = True
    root_last: bool = False
    shots: bool = True


class Binned(NamedTuple):
    """Report of labels: the bin of each label (N,) -> (N,), the shot of each bin (B,), and what is
    measured. A row is a prediction and its label.
    """

    bins: Callable[[Tensor], Tensor]
    shots: Tensor
    measures: Sequence[Measure]

    def samples(self, pred: Array, target: Array) -> Tensor:
        return labelled(pred, target)

    def averages(self, rows: Tensor, weights: Tensor) -> Averages:
        p, t = rows.T
        return shot_averages(bin_sums(self, p, t, weights.to(rows.device)), self)


class Maps(Binned):
    """Report of pixels. A row has the bin sums (1 + M, B) of an image."""

    def samples(self, pred: Array, target: Array, mask: Array | None = None) -> Tensor:
        batch = pred, target, [None] * len(target) if mask is None else mask
        if len({len(each) for each in batch}) > 1:
            got = ", ".join(str(len(each)) for each in batch)
            raise ValueError(f"pred, target and mask must have as many images; got {got}.")
        images: Any = zip(*batch, strict=True)
        pairs = [paired(*image) for image in images]
        rows = [bin_sums(self, p, t, p.new_ones(1, len(p)))[:, 0] for p, t in pairs]
        empty = torch.zeros(0, 1 + len(self.measures), len(self.shots), dtype=torch.float64)
        return torch.stack(rows) if rows else empty

    def averages(self, rows: Tensor, weights: Tensor) -> Averages:
        infinite = rows.isinf()  # log10 of 0; 0 * inf would be NaN
        both = rows.masked_fill(infinite, 0), infinite.to(rows)
        sums, bad = (torch.einsum("rn,nmb->mrb", weights.to(rows.device), x) for x in both)
        return shot_averages(sums.masked_fill(bad > 0, math.inf), self)


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


def by_age(train_labels: Array) -> Binned:
    return Binned(g.age_bins, g.age_shots(train_labels), AGE)


def by_depth() -> Maps:
    return Maps(g.depth_bins, g.depth_shots(), DEPTH)


def age_report(pred: Array, target: Array, train_labels: Array) -> Report:
    """MAE, MSE and GM over all ages and per shot, and balanced over ages: (N,), (N,), (L,)."""
    return report(by_age(train_labels), pred, target)


def depth_report(pred: Array, target: Array, mask: Array | None = None) -> Report:
    """RMSE, MSE, MAE, abs-rel, log10, delta1-3 over pixels and per shot, plain and balanced."""
    return report(by_depth(), [pred], [target], None if mask is None else [mask])


def mesh_report(errors: Mapping[str, Array], rarity: Array) -> Report:
    """Mean, balanced mean and tail means of each given error: {name: (N,)}, (N,)."""
    return report(Mesh(tuple(errors)), errors, rarity)


def bin_sums(kind: Binned, p: Tensor, t: Tensor, weights: Tensor) -> Tensor:
    """Counts n_b, then S_b of each measure: (N,), (N,), (R, N) -> (1 + M, R, B). An error may be
    infinite (the logarithm of 0), so that samples of weight 0 are left out.
    """
    values = torch.stack([torch.ones_like(t), *(m.error(p, t) for m in kind.measures)])
    empty, bins = values.new_zeros(len(values), len(kind.shots)), kind.bins(t)
    return torch.stack(
        [empty.index_add(1, bins, torch.where(w > 0, values * w, 0.0)) for w in weights], 1
    )


def average(
    total: Tensor,
    count: Tensor,
    balanced: bool,
    undo: Callable[[Tensor], Tensor] = torch.clone,
    root_last: bool = False,
) -> Tensor:
    """Plain or balanced mean over the bins: (..., B), (..., B) -> (...)."""
    if not balanced:
        return undo(total.sum(-1) / count.sum(-1))
    seen, means = count > 0, total / count
    means = torch.where(seen, means if root_last else undo(means), 0).sum(-1) / seen.sum(-1)
    return undo(means) if root_last else means


def columns(measures: Sequence[Measure]) -> Iterator[tuple[str, int, bool, str]]:
    """Yield the keys of a report: each with its measure's index, whether balanced, and group."""
    for index, measure in enumerate(measures):
        for balanced in (False, True)[: 1 + measure.balanced]:
            for suffix in g.SUFFIXES if measure.shots else ("",):
                yield f"{'b' * balanced}{measure.name}{suffix}", index, balanced, suffix


def shot_averages(totals: Tensor, kind: Binned) -> dict[str, Tensor]:
    """(1 + M, ..., B) -> {"mae", "mae_many", ..., "bmae", "bmae_many", ...: (...)}."""
    count, *sums = totals
    groups = g.shot_members(kind.shots.to(totals.device))
    report = {}
    for key, index, balanced, suffix in columns(kind.measures):
        members, measure = groups[suffix], kind.measures[index]
        cells = sums[index][..., members], count[..., members]
        report[key] = average(*cells, balanced, measure.undo, measure.root_last)
    return report


def mesh_keys(name: str) -> tuple[str, ...]:
    return name, f"b{name}", *(f"b{name}_tail{percent}" for percent in g.TAILS)


class Mesh(NamedTuple):
    """Report of meshes, with E named errors. A row has the rarity, then each error."""

    names: tuple[str, ...] = MESH

    def samples(self, errors: Mapping[str, Array], rarity: Array) -> Tensor:
        """E times (N,), and (N,) -> (N, 1 + E)."""
        if not self.names or set(errors) != set(self.names):
            raise ValueError(
                f"mesh errors must be given under {list(self.names) or 'at least one name'}; "
                f"got {list(errors)}. Name what is measured: MeshMetrics(names=...)."
            )
        columns = [flat("rarity", rarity)]
        for name in self.names:
            column = flat(name, errors[name]).to(columns[0].device)
            require_same_shape(name, column, "rarity", columns[0])
            columns.append(column)
        return torch.stack(columns, dim=1)

    def averages(self, rows: Tensor, weights: Tensor) -> Averages:
        """{"mpvpe", "bmpvpe", "bmpvpe_tail10", "bmpvpe_tail5", ...}.

        b... is balanced over 100 rarity regions; a tail is a plain mean over its samples.
        Replicates keep the regions and tails of the test set: they change how often a sample
        occurs, not how rare it is.
        """
        if not len(rows):
            return {}
        rarity, *errors = rows.T
        member = rows.new_zeros(len(rows), g.REGIONS + len(g.TAILS))
        member[torch.arange(len(rows)), g.rarity_regions(rarity)] = 1
        for i, percent in enumerate(g.TAILS, g.REGIONS):
            member[g.rarest(rarity, percent), i] = 1
        count = weights @ member  # (R, regions and tails)
        report = {}
        for name, error in zip(self.names, errors, strict=True):
            total = weights @ (error[:, None] * member)
            regions = total[:, : g.REGIONS], count[:, : g.REGIONS]
            tails = (total / count)[:, g.REGIONS :].T
            means = average(*regions, False), average(*regions, True), *tails
            report |= dict(zip(mesh_keys(name), means, strict=True))
        return report


def as_floats(averages: Averages) -> Report:
    values = {key: float(value) for key, value in averages.items()}
    if all(math.isnan(value) for value in values.values()):
        raise ValueError("a report needs at least one sample; check the split and the mask.")
    return values


def bootstrap_weights(samples: int, replicates: int, seed: int = 0) -> Tensor:
    """(R, N) how often each sample occurs in each replicate; the rows sum to N.

    They depend only on the number of samples and the seed, so models are compared on the same ones.
    """
    return torch.cat(list(bootstrap_batches(samples, replicates, seed)))


def bootstrap_batches(samples: int, replicates: int, seed: int, size: int = 50) -> Iterator[Tensor]:
    """Yield the same weights, at most `size` replicates at a time."""
    rng, shares = np.random.default_rng(seed), np.full(samples, 1 / samples)
    for start in range(0, replicates, size):
        counts = rng.multinomial(samples, shares, min(size, replicates - start))
        yield torch.from_numpy(counts).double()
