"""Leverage: how much any map of the predictions can gain in the balanced error.

The map is the best monotone one, isotonic regression with balanced weights. It is fitted on one
half of the held-out samples and measured on the other, both ways. No loss that only stretches
predictions can gain more.

N: samples; R: bootstrap replicates.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

REPLICATES = 400
FEWEST = 20  # held-out samples


@dataclass(frozen=True)
class Leverage:
    """Balanced mean error of held-out predictions, before and after the best map, and the gain as
    a share of the error before, with its 95% interval over samples.
    """

    before: float
    after: float
    gain: float
    interval: tuple[float, float]
    theorem: float  # gain of Theorem 1's curve

    @property
    def helps(self) -> bool:
        return self.interval[0] > 0

    def __str__(self) -> str:
        low, high = self.interval
        lines = [
            f"Leverage: the best map of these predictions changes their balanced error from "
            f"{self.before:.4g} to {self.after:.4g} on other samples:",
            f"a gain of {self.gain:.1%} (95% interval {low:.1%} to {high:.1%}).",
            f"Theorem 1's curve, with one parameter, gains {self.theorem:.1%}.",
        ]
        if not self.helps:
            lines.append(
                "Balancing cannot be expected to help: rare labels are confused, not shrunk."
            )
        return "\n".join(lines)


def leverage(labels: NDArray, pred: NDArray, target: NDArray) -> Leverage:
    """Training labels (L,), held-out predictions and labels (N,)."""
    from ..posthoc import Rebalancer
    from ..posthoc.fitting import ranges

    if pred.shape != target.shape or len(pred) < FEWEST:
        raise ValueError(
            f"expected at least {FEWEST} held-out predictions and labels of one shape, got "
            f"{pred.shape} and {target.shape}"
        )
    half = np.random.default_rng(0).permutation(len(pred)) % 2 == 0
    best, theorem = np.empty_like(pred), np.empty_like(pred)
    for train, test in ((half, ~half), (~half, half)):
        own = pred[train], target[train]
        best[test] = Rebalancer(labels, method="isotonic").fit(*own)(pred[test])
        theorem[test] = Rebalancer(labels, criterion="bmae").fit(*own)(pred[test])
    place = ranges(target)
    share = np.full(len(pred), 1 / len(pred))
    weights = np.random.default_rng(1).multinomial(len(pred), share, REPLICATES)
    plain, after, curved = (
        _balanced(np.abs(p - target), place, weights) for p in (pred, best, theorem)
    )
    gains = 1 - after / plain
    low, high = np.quantile(gains[1:], [0.025, 0.975])
    return Leverage(
        before=float(plain[0]),
        after=float(after[0]),
        gain=float(gains[0]),
        interval=(float(low), float(high)),
        theorem=float(1 - curved[0] / plain[0]),
    )


def _balanced(error: NDArray, place: NDArray, weights: NDArray) -> NDArray:
    """(1 + R,) mean over ranges of the mean error, of all samples and of each replicate."""
    member = place[:, None] == np.unique(place)
    weights = np.concatenate([np.ones((1, len(error))), weights])
    counts, sums = weights @ member, weights @ (member * error[:, None])
    return np.nanmean(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), axis=1)
