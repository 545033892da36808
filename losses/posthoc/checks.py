"""Checks of what a Rebalancer is given: settings, held-out data and predictions.

N: samples; D: label dimensions.
"""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batches import is_readable
from ..priors import Bins
from .fitting import Criterion, Method
from .inverse import ALL_EQUAL, NOISE, Point
from .labels import label_range

if TYPE_CHECKING:
    from . import Rebalancer

FEWEST = 30  # held-out samples


def check_settings(r: "Rebalancer") -> None:
    for name, value, known in (
        ("likelihood", r.kind, tuple(NOISE)),
        ("point", r.point, Point.__args__),
        ("method", r.method, Method.__args__),
        ("criterion", r.criterion, Criterion.__args__),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
    for name, value in (("strength", r.strength), ("power", r.power)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}.")
    if r.bound is not None and not r.bound >= 0:
        raise ValueError(f"bound must be None or a number >= 0, got {r.bound}.")
    if (r.sigma < 0).any() or r.sigma.isinf().any() or r.sigma.ndim > 1:
        raise ValueError(f"sigma must be a number >= 0, or one per dimension, got {r.sigma}.")


def can_help(r: "Rebalancer", pred: NDArray, target: NDArray) -> bool:
    """Raise for held-out data (N, D) that is wrong; warn if balancing cannot help."""
    if pred.shape != target.shape or pred.ndim != 2 or len(pred) < 2:
        raise ValueError(
            "Expected pred and target of one shape (N,) or (N, D) with N >= 2, got "
            f"{pred.shape} and {target.shape}."
        )
    if r.dims != target.shape[1]:
        raise ValueError(
            f"The prior has {r.dims} dimensions, the labels have {target.shape[1]}; give a "
            "GaussianMixture of as many dimensions, or one Rebalancer per dimension."
        )
    for name, values in (("pred", pred), ("target", target)):
        if bad := int((~np.isfinite(values).all(-1)).sum()):
            raise ValueError(f"{name} must be finite; {bad} of {len(values)} samples are not.")
    low, high = label_range(r.prior).cpu().numpy()
    if (low == high).all() and isinstance(r.prior, Bins):
        raise ValueError(ALL_EQUAL.format(low=float(low[0])))
    gaps = r.prior.centers.sort().values.diff() if isinstance(r.prior, Bins) else torch.zeros(1)
    margin = float(gaps.max()) / 2
    outside = ((target < low - margin) | (target > high + margin)).any(-1).mean()
    if outside > 0.5:
        raise ValueError(
            f"{outside:.0%} of the held-out labels lie outside the prior's. Give the prior of the "
            "same labels, in the same unit."
        )
    if outside > 0.05:
        warnings.warn(
            f"{outside:.0%} of the held-out labels lie outside the prior's range; predictions are "
            "clipped to it. Fit the prior on all training labels.",
            stacklevel=3,
        )
    if len(pred) < FEWEST:
        warnings.warn(
            f"{len(pred)} held-out samples are few to choose the balancing from; use at least "
            f"{FEWEST}, or give sigma.",
            stacklevel=3,
        )
    if (np.ptp(pred, axis=0) == 0).all():
        reason = "All held-out predictions are equal, so that they do not tell labels apart."
    elif not ((pred - pred.mean(0)) * (target - target.mean(0))).sum() > 0:
        reason = "The held-out predictions do not increase with the labels."
    else:
        return True
    message = f"{reason} Balancing cannot help; predictions are left as they are."
    warnings.warn(message, stacklevel=3)
    return False


def check_labels(r: "Rebalancer", labels: NDArray | None) -> None:
    """Refuse training labels that are not (L,) or (L, D), or not finite."""
    if labels is None:
        return
    width = labels.shape[1] if labels.ndim == 2 else 1
    if labels.ndim > 2 or width != r.dims or not np.isfinite(labels).all():
        bad = int((~np.isfinite(labels)).sum())
        raise ValueError(
            f"Expected finite train_labels (L,) or (L, D) with D = {r.dims}, got {labels.shape} "
            f"with {bad} that are not finite."
        )


def check_sigma(r: "Rebalancer") -> None:
    """Refuse a sigma for another number of dimensions."""
    if r.sigma.ndim and len(r.sigma) not in (1, r.dims):
        raise ValueError(
            f"sigma must be one number or one per dimension ({r.dims}), got {len(r.sigma)}; give "
            "one per sample when calling: r(pred, sigma)."
        )


def check_call(r: "Rebalancer", pred: Tensor, sigma: Any) -> None:
    """Refuse a call before `fit`, and predictions that are not finite."""
    if r.prior is None or (r.active is None and sigma is None):
        raise RuntimeError("Rebalancer has no sigma yet; call fit, or give sigma and a prior.")
    if is_readable(pred) and not pred.isfinite().all():
        raise ValueError("Predictions must be finite; some are NaN or infinite.")


def check_rows(r: "Rebalancer", rows: Tensor, sigma: Tensor) -> None:
    """Refuse predictions (N, D) and noise that Newton's method cannot take."""
    if r.method != "theorem":
        raise ValueError(f"An isotonic curve has no sigma, got one for method={r.method!r}.")
    if r.bound is not None and r.ends.isinf().any():
        raise ValueError("bound needs the range of the labels; call fit(..., train_labels).")
    if r.point == "median" or r.kind != "gaussian":
        raise ValueError(
            "One sigma per sample, and labels of several dimensions, need "
            f"likelihood='gaussian' and point='mean', got {r.kind!r} and {r.point!r}."
        )
    if rows.ndim != 2 or rows.shape[-1] != r.dims:
        raise ValueError(f"Expected pred (N, {r.dims}), got {tuple(rows.shape)}.")
    if sigma.ndim == 2 and len(sigma) not in (1, len(rows)):
        raise ValueError(f"Expected one sigma per sample ({len(rows)}), got {len(sigma)}.")
    if is_readable(sigma) and not (sigma.isfinite() & (sigma >= 0)).all():
        raise ValueError("sigma must be finite and >= 0; some are not.")


def refuse(r: "Rebalancer", outside: Any) -> None:
    """Raise if some results lie outside the label range and its bound."""
    if outside:
        raise ValueError(
            f"Some balanced predictions leave the label range by more than bound={r.bound}. Use a "
            "smaller sigma or strength, a larger bound, or bound=None, which clips."
        )
