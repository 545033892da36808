"""Checks of what a booster is trained with. N: samples; D: label dimensions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..likelihoods import Location
from ..priors import Batch, Bins, Prior


def check_settings(likelihood: Any, prior: Any, strength: Any, learning_rate: Any) -> None:
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
    if any(isinstance(part, Batch) for part in prior.modules()):
        raise ValueError(
            "A booster has no batches; use Bins.fit(labels, edges), or Bins(labels, weights) with "
            "a weight of one for each label."
        )
    if not (_is_real(strength) and strength >= 0):
        raise ValueError(f"strength must be a number >= 0, got {strength}")
    if not (_is_real(learning_rate) and 0 < learning_rate <= 1):
        raise ValueError(f"learning_rate must be in (0, 1], got {learning_rate}")


def checked_arrays(labels: Any, pred: Any, weight: Any) -> list[NDArray]:
    """Return labels (N, D), predictions (N, D) and weights (N, 1), one each if not given."""
    weight = np.ones(len(pred)) if weight is None or not np.size(weight) else weight
    labels, pred, weight = (np.asarray(a, dtype=np.float64) for a in (labels, pred, weight))
    if labels.size != pred.size:
        raise ValueError(
            f"expected as many labels as predictions, {pred.shape}, got {labels.shape}; LightGBM "
            "has one label per sample; use XGBoost for several."
        )
    if len(weight) != len(pred) or not (weight >= 0).all() or not weight.any():
        raise ValueError(f"expected a weight >= 0 for each of {len(pred)} samples, not all zero")
    labels, pred, weight = (a.reshape(len(pred), -1) for a in (labels, pred, weight))
    if not np.isfinite(labels).all():
        bad = np.flatnonzero(~np.isfinite(labels).all(1))[:5].tolist()
        raise ValueError(f"labels must be finite; samples {bad} are not. Filter them first.")
    if not np.isfinite(pred).all():
        raise ValueError(
            "The predictions are not finite: training diverged. Give the objective the booster's "
            "learning rate, or use a larger sigma."
        )
    return [labels, pred, weight]


def check_labels(likelihood: Location, prior: Prior, labels: NDArray) -> None:
    """Raise for labels (N, D) that bins do not cover: predictions would run off."""
    if not isinstance(prior, Bins):
        return
    centers = np.sort(prior.centers.numpy())
    low, high, ends = centers[0], centers[-1], (labels.min(), labels.max())
    margin = 3 * float(likelihood.value.max()) + np.diff(centers).max(initial=0.0)
    if ends[0] < low - margin or ends[1] > high + margin:
        raise ValueError(
            f"The labels, from {ends[0]:.4g} to {ends[1]:.4g}, lie outside the bins of the prior, "
            f"from {low:.4g} to {high:.4g}; fit the prior to these labels, in their unit."
        )


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
