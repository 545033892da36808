"""Figures and intervals of predictions in a CSV file, as in the tables of this project.

    target,pred,other      one column of labels, one or more of predictions; others are not read

An interval is the middle 95% on bootstrap replicates of the samples. Two models are compared on the
same replicates. A replicate often lacks a range that has one or two samples, so the interval of a
balanced error can lie mostly on one side of it, and is too narrow. Replicates of each range on its
own would make it narrower: of one sample there is no spread. N: samples; R: replicates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from .balanced import RANGES, by_range
from .columns import is_missing, is_number, numeric, read, training_labels
from .report import Kind, Report, bootstrap_batches, by_age, report
from .similarity import Similarity

LEVEL = 0.95
KINDS: dict[str, Callable[..., Kind]] = {"any": by_range, "age": by_age, "similarity": Similarity}
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
        width = max(len(key) for figures in self.values.values() for key in figures)
        for name, figures in self.values.items():
            lines.append(f"{name}  (95% interval)")
            for key, value in figures.items():
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
    for name, given in preds.items():
        if missing := int(np.isnan(given).sum()):
            raise ValueError(
                f"{path}: {missing} predictions in column {name!r} are missing; fill them in, or "
                "name the columns to evaluate as pred."
            )
    labels = labels[known]
    trained = labels if train is None else training_labels(Path(train), target)
    measured = by_range(trained, ranges) if kind == "any" else KINDS[kind](trained)
    rows = {name: measured.samples(values, labels) for name, values in preds.items()}
    values = {name: report(measured, pred, labels) for name, pred in preds.items()}
    found: dict[str, list] = {name: [] for name in names}
    for weights in bootstrap_batches(len(labels), replicates, seed):
        for name, own in rows.items():
            found[name].append(measured.averages(own, weights))
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
    left = f" ({missing:,} without a label left out)" if (missing := int((~known).sum())) else ""
    about = f"{path}: {len(labels):,} samples{left}; ranges and shots from {source}"
    return Evaluation(values, intervals, differences, about)


def _prediction_columns(columns: Mapping[str, Sequence[str]], target: str) -> list[str]:
    if "pred" in columns and target != "pred":
        return ["pred"]
    found = []
    for name, cells in columns.items():
        given = [cell for cell in cells if not is_missing(cell)]
        if name != target and given and all(map(is_number, given)):
            found.append(name)
    return found


def _middle(values: NDArray) -> Interval:
    """Return the percentile interval; a replicate may leave a group empty."""
    values = values[np.isfinite(values)]
    if not len(values):
        return np.nan, np.nan
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
