"""Leverage: how much any map of the predictions can gain in the balanced error.

In one dimension, the map is the best monotone one (isotonic regression with balanced weights); in
several, the best stretch about the mean. It is fitted on one half of the held-out samples and
measured on the other, both ways. No loss that only stretches predictions can gain more.

N: samples; D: label dimensions; R: bootstrap replicates.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from ..batches import as_array
from ..posthoc import Rebalancer
from ..posthoc.fitting import balanced_weight, ranges

REPLICATES = 400
FEWEST = 20  # held-out samples
Map = Callable[[NDArray], NDArray]


@dataclass(frozen=True)
class Leverage:
    """Balanced mean error of held-out predictions, before and after the best map, and the gain as
    a share of the error before, with its 95% interval over samples.
    """

    before: float
    after: float
    gain: float
    interval: tuple[float, float]
    theorem: float | None  # gain of Theorem 1's curve; None in several dimensions

    @property
    def helps(self) -> bool:
        return self.interval[0] > 0

    def __str__(self) -> str:
        low, high = self.interval
        lines = [
            f"Leverage: the best map of these predictions changes their balanced error from "
            f"{self.before:.4g} to {self.after:.4g} on other samples:",
            f"a gain of {self.gain:.1%} (95% interval {low:.1%} to {high:.1%}).",
        ]
        if self.theorem is not None:
            lines.append(f"Theorem 1's curve, with one parameter, gains {self.theorem:.1%}.")
        if not self.helps:
            lines.append(
                "Balancing cannot be expected to help: rare labels are confused, not shrunk."
            )
        return "\n".join(lines)


def leverage(labels: ArrayLike, pred: ArrayLike, target: ArrayLike) -> Leverage:
    """Return how much a map of held-out predictions can gain.

    labels: (L,) or (L, D) of the training set. pred, target: (N,) or (N, D), held out.
    """
    given = (as_array(values) for values in (labels, pred, target))
    labels, pred, target = (a[:, 0] if a.shape[1:] == (1,) else a for a in given)
    if not all(np.isfinite(values).all() for values in (labels, pred, target)):
        raise ValueError("expected finite labels, predictions and targets; some are NaN")
    if pred.shape != target.shape or len(pred) < FEWEST:
        raise ValueError(
            f"expected at least {FEWEST} held-out predictions and labels of one shape, got "
            f"{pred.shape} and {target.shape}"
        )
    if (pred == target).all():
        raise ValueError("the predictions equal the labels: there is nothing to gain")
    half = np.random.default_rng(0).permutation(len(pred)) % 2 == 0
    one = pred.ndim == 1
    found = {kind: np.empty_like(pred) for kind in (("best", "theorem") if one else ("best",))}
    for train, test in ((half, ~half), (~half, half)):
        own = pred[train], target[train]
        if one:
            best: Map = Rebalancer(labels, method="isotonic").fit(*own)
            found["theorem"][test] = Rebalancer(labels, criterion="bmae").fit(*own)(pred[test])
        else:
            best = _stretch(labels, *own)
        found["best"][test] = best(pred[test])
    place = ranges(target if one else np.linalg.norm(target - target.mean(0), axis=1))
    weights = np.random.default_rng(1).multinomial(
        len(pred), np.full(len(pred), 1 / len(pred)), REPLICATES
    )
    errors = {k: _balanced(_size(v - target), place, weights) for k, v in found.items()}
    plain = _balanced(_size(pred - target), place, weights)
    gains = 1 - errors["best"] / plain
    low, high = np.quantile(gains[1:], [0.025, 0.975])
    return Leverage(
        before=float(plain[0]),
        after=float(errors["best"][0]),
        gain=float(gains[0]),
        interval=(float(low), float(high)),
        theorem=float(1 - errors["theorem"][0] / plain[0]) if one else None,
    )


def _stretch(labels: NDArray, pred: NDArray, target: NDArray) -> Map:
    center = labels.mean(0)
    weight = balanced_weight(np.linalg.norm(target - center, axis=1), np.ones(len(target)))

    def error(factor: float) -> float:
        return float(weight @ _size(center + factor * (pred - center) - target))

    guess = weight @ ((pred - center) * (target - center)).sum(1)  # least squares
    guess /= max(weight @ np.square(pred - center).sum(1), 1e-300)
    ends, options = (0, 3 * max(guess, 1)), {"xatol": 1e-10}
    best = minimize_scalar(error, bounds=ends, method="bounded", options=options).x  # convex
    return lambda x: center + best * (x - center)


def _size(error: NDArray) -> NDArray:
    return np.abs(error) if error.ndim == 1 else np.linalg.norm(error, axis=1)


def _balanced(error: NDArray, place: NDArray, weights: NDArray) -> NDArray:
    """(1 + R,) mean over ranges of the mean error, of all samples and of each replicate."""
    member = place[:, None] == np.unique(place)
    weights = np.concatenate([np.ones((1, len(error))), weights])
    counts, sums = weights @ member, weights @ (member * error[:, None])
    return np.nanmean(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), axis=1)
