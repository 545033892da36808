"""Checks of what a booster is trained with."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..likelihoods import Likelihood, Location
from ..priors import Batch, Bins, Prior


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def check(likelihood: Likelihood, prior: Prior, strength: Any, learning_rate: Any) -> None:
    """Raise for settings that a booster cannot be trained with."""
    if not isinstance(likelihood, Location):
        raise ValueError(
            f"A booster predicts one number per label, but {type(likelihood).__name__} needs more; "
            "use Gaussian, Laplace or Huber, or BalancedRegressor."
        )
    if likelihood.learned or likelihood.attempts:
        raise ValueError(
            f"A booster cannot learn {likelihood.symbol}; give a number in units of the labels. "
            "diagnose(labels, residuals) suggests one."
        )
    if not isinstance(prior, Prior):
        raise ValueError(f"prior is a Prior, such as Bins.fit(labels, edges); got {prior!r}")
    parts = [prior, *prior.modules()]
    if any(isinstance(part, Batch) for part in parts):
        raise ValueError(
            "A booster has no batches; use Bins.fit(labels, edges), or Bins(labels, weights) with "
            "a weight of one for each label."
        )
    if not (_is_real(strength) and strength >= 0):
        raise ValueError(f"strength must be a number >= 0, got {strength}")
    if not (_is_real(learning_rate) and 0 < learning_rate <= 1):
        raise ValueError(f"learning_rate must be in (0, 1], got {learning_rate}")


def check_labels(likelihood: Location, prior: Prior, labels: NDArray) -> None:
    """Raise for labels (N, D) that bins do not cover: predictions would run off."""
    if not isinstance(prior, Bins):
        return
    centers = np.sort(prior.centers.numpy())
    low, high, ends = centers[0], centers[-1], (labels.min(), labels.max())
    widest = np.diff(centers).max() if len(centers) > 1 else 0.0
    margin = 3 * float(likelihood.value.max()) + widest
    if ends[0] < low - margin or ends[1] > high + margin:
        raise ValueError(
            f"The labels, from {ends[0]:.4g} to {ends[1]:.4g}, lie outside the bins of the prior, "
            f"from {low:.4g} to {high:.4g}; fit the prior to these labels, in their unit."
        )
