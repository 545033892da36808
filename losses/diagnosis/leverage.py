"""Leverage: how much any monotone map of the predictions can gain in the balanced error.

The best map (isotonic regression with balanced weights) is fitted on one half of the held-out
samples and measured on the other, both ways. No loss that only stretches predictions can gain more.

N: samples; R: bootstrap replicates.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

REPLICATES = 400
FEWEST = 20  # held-out samples
MAPS: dict[str, dict[str, Any]] = {  # settings of Rebalancer
    "best": {"method": "isotonic"},
    "theorem": {"criterion": "bmae"},
}


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
    """Return how much a map of held-out predictions can gain: labels (L,) of the training set,
    pred (N,) and target (N,) held out.
    """
    from ..posthoc import Rebalancer  # imported late: it takes seconds
    from ..posthoc.fitting import ranges

    if pred.shape != target.shape or len(pred) < FEWEST:
        raise ValueError(
            f"expected at least {FEWEST} held-out predictions and labels of one shape, got "
            f"{pred.shape} and {target.shape}"
        )
    half = np.random.default_rng(0).permutation(len(pred)) % 2 == 0
    found = {"plain": pred, **{name: np.empty_like(pred) for name in MAPS}}
    for train, test in ((half, ~half), (~half, half)):
        for name, settings in MAPS.items():
            curve = Rebalancer(labels, **settings).fit(pred[train], target[train])
            found[name][test] = curve(pred[test])
    weights = np.random.default_rng(1).multinomial(
        len(pred), np.full(len(pred), 1 / len(pred)), REPLICATES
    )
    place = ranges(target)
    errors = {k: _balanced(np.abs(v - target), place, weights) for k, v in found.items()}
    gains = {k: 1 - error / errors["plain"] for k, error in errors.items()}
    low, high = np.quantile(gains["best"][1:], [0.025, 0.975])
    return Leverage(
        before=float(errors["plain"][0]),
        after=float(errors["best"][0]),
        gain=float(gains["best"][0]),
        interval=(float(low), float(high)),
        theorem=float(gains["theorem"][0]),
    )


def _balanced(error: NDArray, place: NDArray, weights: NDArray) -> NDArray:
    """(1 + R,) mean over ranges of the mean error, of all samples and of each replicate."""
    member = place[:, None] == np.unique(place)
    weights = np.concatenate([np.ones((1, len(error))), weights])
    counts, sums = weights @ member, weights @ (member * error[:, None])
    return np.nanmean(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), axis=1)
