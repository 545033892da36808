"""Balanced errors of any one-dimensional label: averages over equally wide ranges, and SERA.

A range belongs to a shot by its number of training labels: many (more than 100), medium (20 to 100)
or few (under 20). Labels beyond the training labels count to the first or last range.

N: samples; L: training labels; B: ranges.
"""

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .errors import Array, absolute, flat, squared
from .groups import by_count
from .report import Binned, Measure, Report, columns, report

RANGES = 10
PLAIN = (Measure("mae", absolute), Measure("rmse", squared, undo=torch.sqrt, root_last=True))
SERA = Measure("sera", squared, balanced=False, shots=False)  # the error times the relevance
KEYS = tuple(key for key, *_ in columns((*PLAIN, SERA)))


def balanced_report(
    pred: Array, target: Array, train_labels: Array, ranges: int = RANGES
) -> Report:
    """MAE and RMSE over samples, balanced over ranges of the label, per shot, and SERA.

    (N,), (N,), (L,) -> {"mae", "mae_many", ..., "bmae", ..., "rmse", ..., "brmse", ..., "sera"}.
    bmae is the mean of the ranges' MAE, brmse the root of the mean of their MSE; ranges without
    samples do not count, and a shot without samples is NaN. SERA (Ribeiro and Moniz, 2020)
    integrates the squared error of labels of relevance t or more over t from 0 to 1, which is the
    sum of relevance times squared error; here it is the mean.

    Examples:
        >>> report = balanced_report([9.0, 1.0], [10.0, 1.0], train_labels=[0.0, 1.0, 2.0, 10.0])
        >>> report["mae"], report["bmae_few"]
        (0.5, 0.5)
    """
    return report(by_range(train_labels, ranges), pred, target)


def by_range(train_labels: Array, ranges: int = RANGES) -> Binned:
    """Return the ranges of the training labels, their shots and what is measured."""
    if train_labels is None:
        raise ValueError("train_labels must hold labels, whose range is divided; got None.")
    train = flat("train_labels", train_labels).cpu()
    if not (isinstance(ranges, int) and ranges >= 1):
        raise ValueError(f"ranges must be a whole number >= 1, got {ranges!r}.")
    if not len(train):
        raise ValueError("train_labels must hold labels, whose range is divided; got none.")
    low, high = float(train.min()), float(train.max())
    if low == high:
        raise ValueError(f"train_labels must differ, to be divided into ranges; all are {low:g}.")
    edges = torch.from_numpy(np.linspace(low, high, ranges + 1))
    bins = partial(_range_of, edges=edges)
    shots = by_count(torch.bincount(bins(train), minlength=ranges), few_below=20)
    sera = SERA._replace(error=partial(_relevant, train_labels=train))
    return Binned(bins, shots, (*PLAIN, sera))


def _range_of(labels: Tensor, edges: Tensor) -> Tensor:
    place = torch.searchsorted(edges.to(labels.device), labels.contiguous(), right=True) - 1
    return place.clamp(0, len(edges) - 2)


def _relevant(pred: Tensor, target: Tensor, train_labels: Tensor) -> Tensor:
    weight = relevance(target.cpu().numpy(), train_labels.numpy())
    return torch.from_numpy(weight).to(target.device) * squared(pred, target)


def relevance(labels: NDArray, train_labels: NDArray) -> NDArray[np.float64]:
    """(N,) in [0, 1]: 0 at the median of the training labels, 1 beyond the whiskers of their box
    plot, cubic in between. A side without outliers is 0, unless both sides have none.
    """
    low, median, high = np.quantile(train_labels, [0.25, 0.5, 0.75])
    reach = 1.5 * (high - low)
    inside = train_labels[(train_labels >= low - reach) & (train_labels <= high + reach)]
    below, above = train_labels.min() < inside.min(), train_labels.max() > inside.max()
    found = np.zeros(len(labels))
    for side, end, outliers in ((-1, inside.min(), below), (1, inside.max(), above)):
        if outliers or not (below or above):
            far = side * (labels - median)
            t = np.clip(far / max(side * (end - median), 1e-300), 0, 1)
            found = np.where(far > 0, 3 * t**2 - 2 * t**3, found)
    return found


def balanced_scorer(
    metric: str = "bmae", train_labels: Array | None = None, ranges: int = RANGES
) -> Callable[..., Any]:
    """Return a scikit-learn scorer: minus a figure of `balanced_report`, so that greater is better.

    train_labels: define ranges, shots and relevance, the same for every fold; by default the labels
    that are scored.

    Examples:
        >>> GridSearchCV(model, grid, scoring=balanced_scorer("bmae", y))  # doctest: +SKIP
    """
    from sklearn.metrics import make_scorer

    if metric not in KEYS:
        raise ValueError(f"Unknown metric {metric!r}; choose from {', '.join(KEYS)}.")
    score = partial(_score, metric=metric, train_labels=train_labels, ranges=ranges)
    return make_scorer(update_wrapper(score, _score), greater_is_better=False)


def _score(
    target: Array, pred: Array, metric: str, train_labels: Array | None, ranges: int
) -> float:
    labels = target if train_labels is None else train_labels
    return balanced_report(pred, target, labels, ranges)[metric]
