"""Figures and intervals of predictions in a CSV file, as in the tables of this project.

    target,pred,other      one column of labels, one or more of predictions; others are not read

An interval is the middle 95% on bootstrap replicates of the samples. Two models are compared on the
same replicates. N: samples; R: replicates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .balanced import RANGES, by_range
from .columns import is_number, numbers, numeric, read
from .errors import flat, paired
from .groups import similarity_shots
from .report import Binned, Report, as_floats, bootstrap_batches, by_age, shot_averages
from .similarity import similarity_averages

LEVEL = 0.95
KINDS = ("any", "age", "similarity")
Interval = tuple[float, float]


@dataclass(frozen=True)
class Evaluation:
    """Figures of each prediction column, their intervals, and those of the differences to the
    first column. `str` is a table without empty shots."""

    values: dict[str, Report]
    intervals: dict[str, dict[str, Interval]]
    differences: dict[str, dict[str, Interval]]
    about: str

    def __str__(self) -> str:
        lines = [self.about, ""]
        width = max(len(key) for report in self.values.values() for key in report)
        for name, report in self.values.items():
            lines.append(f"{name}  (95% interval)")
            for key, value in report.items():
                if np.isnan(value):  # a shot without samples
                    continue
                low, high = self.intervals[name][key]
                line = f"  {key:<{width}} {value:>10.4g}  [{low:.4g}, {high:.4g}]"
                if name in self.differences:
                    low, high = self.differences[name][key]
                    line += f"  difference to {next(iter(self.values))} [{low:.4g}, {high:.4g}]"
                lines.append(line)
        return "\n".join(lines)


def evaluate_csv(
    path: str | Path,
    pred: str | Sequence[str] | None = None,
    target: str = "target",
    train: str | Path | None = None,
    kind: str = "any",
    ranges: int = RANGES,
    replicates: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Evaluate predictions in a CSV file; rows without a label are left out.

    Arguments:
        pred: column or columns of predictions; by default `pred`, or else all other numbers.
        target: column of labels.
        train: CSV file with the training labels in its only column (or in the column `target`),
            which define ranges and shots; by default the labels of the file itself.
        kind: "any" (`balanced_report`), "age" or "similarity", the reports of these benchmarks.
        ranges: number of ranges for "any".
        replicates, seed: of the bootstrap.
    """
    if kind not in KINDS:
        raise ValueError(f"Unknown kind {kind!r}; choose from {', '.join(KINDS)}.")
    if replicates < 1:
        raise ValueError(f"replicates must be 1 or more, got {replicates}.")
    path = Path(path)
    columns = read(path)
    labels = numeric(path, columns, target)
    known = ~np.isnan(labels)
    names = _prediction_columns(columns, target) if pred is None else pred
    names = [names] if isinstance(names, str) else list(names)
    if not names or target in names:
        raise ValueError(f"{path}: expected predictions next to the label {target!r}, got {names}.")
    preds = {name: numeric(path, columns, name)[known] for name in names}
    labels = labels[known]
    trained = labels if train is None else _training_labels(Path(train), target)
    averages = {n: _averages(kind, p, labels, trained, ranges) for n, p in preds.items()}
    ones = torch.ones(1, len(labels), dtype=torch.float64)
    values = {name: as_floats(average(ones), len(labels)) for name, average in averages.items()}
    found: dict[str, list] = {name: [] for name in names}
    for weights in bootstrap_batches(len(labels), replicates, seed):
        for name, average in averages.items():
            found[name].append(average(weights))
    replicated = {
        name: {key: torch.cat([one[key] for one in some]).numpy() for key in some[0]}
        for name, some in found.items()
    }
    intervals = {name: {k: _middle(r) for k, r in of.items()} for name, of in replicated.items()}
    first = replicated[names[0]]
    differences = {
        name: {key: _middle(found - first[key]) for key, found in replicated[name].items()}
        for name in names[1:]
    }
    source = "the labels of this file" if train is None else f"{len(trained):,} training labels"
    about = f"{path}: {len(labels):,} samples; ranges and shots from {source}"
    return Evaluation(values, intervals, differences, about)


def _prediction_columns(columns: Mapping[str, Sequence[str]], target: str) -> list[str]:
    if "pred" in columns and target != "pred":
        return ["pred"]
    return [n for n, cells in columns.items() if n != target and all(map(is_number, cells))]


def _training_labels(path: Path, target: str) -> NDArray:
    found = numbers(path, target if target in read(path) else None)
    return found[~np.isnan(found)]


def _averages(
    kind: str, pred: NDArray, labels: NDArray, train: NDArray, ranges: int
) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return weights (R, N) -> the report {key: (R,)}."""
    p, t = paired(pred, labels)
    if kind == "similarity":
        return partial(similarity_averages, p, t, similarity_shots(flat("train", train)))
    binned = by_age(train) if kind == "age" else by_range(train, ranges)
    return partial(_weighted, binned, p, t)


def _weighted(kind: Binned, p: Tensor, t: Tensor, weights: Tensor) -> dict[str, Tensor]:
    values = torch.stack([torch.ones_like(t), *(m.error(p, t) for m in kind.measures)])
    empty, bins = values.new_zeros(len(values), len(kind.shots)), kind.bins(t)
    sums = [empty.index_add(1, bins, values * weight) for weight in weights]
    return shot_averages(torch.stack(sums, 1), kind)


def _middle(values: NDArray) -> Interval:
    """Return the percentile interval; a replicate may leave a group empty."""
    values = values[np.isfinite(values)]
    if not len(values):
        return np.nan, np.nan
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
