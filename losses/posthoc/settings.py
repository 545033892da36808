"""Settings of a Rebalancer and the errors that name what is wrong with them or with the data."""

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batches import is_readable
from ..likelihoods import Gaussian, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Prior
from ..robust import Huber, Laplace

if TYPE_CHECKING:
    from . import Rebalancer

Criterion = Literal["nll", "bmae", "brmse"]
Method = Literal["theorem", "isotonic", "blend"]
Point = Literal["mean", "median"]
KINDS: dict[str, type[Location]] = {"gaussian": Gaussian, "laplace": Laplace, "huber": Huber}
FEWEST = 30  # held-out samples


def check(r: "Rebalancer") -> None:
    choices = {
        "likelihood": (r.kind, tuple(KINDS)),
        "point": (r.point, Point.__args__),
        "method": (r.method, Method.__args__),
        "criterion": (r.criterion, Criterion.__args__),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
    for name, value in {"strength": r.strength, "power": r.power}.items():
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}.")
    if r.bound is not None and not r.bound >= 0:
        raise ValueError(f"bound must be None or a number >= 0, got {r.bound}.")


def refuse(r: "Rebalancer", outside: bool) -> None:
    if outside:
        raise ValueError(
            f"Some balanced predictions leave the label range by more than bound={r.bound}. Use a "
            "smaller sigma or strength, a larger bound, or bound=None, which clips."
        )


def rows_and_noise(r: "Rebalancer", values: Tensor, sigma: Any) -> tuple[Tensor, Tensor]:
    """Predictions (N, D), and their noise: () or (D,), or one per sample (N, 1) or (N, D)."""
    if r.point == "median" or r.kind != "gaussian":
        raise ValueError(
            "One sigma per sample, and labels of several dimensions, need likelihood='gaussian' "
            f"and point='mean', got {r.kind!r} and {r.point!r}."
        )
    rows = values.reshape(-1, 1) if r.dims == 1 else values
    if rows.ndim != 2 or rows.shape[-1] != r.dims:
        raise ValueError(f"Expected pred (N, {r.dims}), got {tuple(values.shape)}.")
    if sigma is None:
        return rows, r.sigma
    noise = torch.as_tensor(sigma).to(rows)
    noise = noise.reshape(-1, 1) if r.dims == 1 or noise.ndim < 2 else noise
    if len(noise) not in (1, len(rows)):
        raise ValueError(f"Expected one sigma per sample ({len(rows)}), got {len(noise)}.")
    return rows, noise


def check_values(r: "Rebalancer", values: Any, finite: bool) -> None:
    """Raise for predictions that are not finite or, in one dimension, exceed the bound."""
    if not (r.changes_nothing or (len(r.x) if r.dims == 1 else r.ready)):
        raise RuntimeError("Rebalancer has no sigma yet; call fit, or give sigma and a prior.")
    if not finite:
        raise ValueError("Predictions must be finite; some are NaN or infinite.")
    readable = not isinstance(values, Tensor) or is_readable(values)
    if r.bound is not None and readable and r.dims == 1 and len(r.x) and np.prod(values.shape):
        low, high = float(r.x[0]), float(r.x[-1])
        refuse(r, float(values.min()) < low or float(values.max()) > high)


def held_out(r: "Rebalancer", pred: NDArray, target: NDArray) -> str | None:
    """Raise for held-out data (N, D) that is wrong; return why balancing cannot help, if so."""
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
    outside = _outside(target, r.prior)
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
        return "All held-out predictions are equal, so that they do not tell labels apart."
    if not ((pred - pred.mean(0)) * (target - target.mean(0))).sum() > 0:
        return "The held-out predictions do not increase with the labels."
    return None


def _outside(target: NDArray, prior: Prior) -> float:
    """Return the share of labels (N, D) that the prior does not cover."""
    if isinstance(prior, Bins):
        centers = prior.centers.double().cpu().numpy()
        margin = np.diff(np.sort(centers)).max(initial=0.0) / 2
        low, high = centers.min() - margin, centers.max() + margin
        return float(((target < low) | (target > high)).mean())
    if isinstance(prior, GaussianMixture):
        means = prior.means.double().cpu().numpy()
        reach = 6 * prior.covariances.diagonal(dim1=-2, dim2=-1).double().sqrt().cpu().numpy()
        inside = (np.abs(target[:, None] - means) <= reach).all(-1).any(-1)
        return float((~inside).mean())
    return 0.0
