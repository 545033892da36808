"""Theorem 1 for gradient boosting: the custom objective of LightGBM and XGBoost.

With the log-evidence f(p) = log E_{y' ~ p_train}[ p_bal(y' | p) ] of a prediction p, the loss is

    l(p) = -log p_bal(y | p) + f(p),    l'(p) = -(log p_bal)'(y | p) + f'(p)

With Gaussian noise, where m and V are the mean and the variance of the labels that p explains
(those of p_train(y') p_bal(y' | p), normalised),

    sigma^2 l'(p) = m(p) - y,    sigma^2 l''(p) = V(p) / sigma^2 >= 0.

So the loss is convex in p, but flat where p leaves the labels, V -> 0, and there Newton's step
-l' / l'' has no bound. With Laplace or Huber noise l'' can be negative, too. The booster gets

    h(p) = max( k + f''(p),  |l'(p)| / delta,  eta / 2 * L ),    k = 1 / scale^2

where L is an upper bound of l'' for all predictions within eta delta (curvature.py), and delta the
range of labels and predictions. k is the largest second derivative of a Gaussian's or Huber's
-log p_bal; for a Gaussian, k + f'' is l'' itself. Why this converges: a leaf moves its n samples by
d = -eta G / H, with G = sum l' and H = sum h. Because h >= |l'| / delta, |d| <= eta delta. So L
bounds l'' along the whole step, and by Taylor's theorem the loss of the leaf changes by at most

    d G + d^2 n L / 2 = -eta G^2 / H * (1 - eta n L / 2 H) <= 0,  since H >= eta / 2 * n L.

So up to the given learning rate eta no tree increases the training loss. This holds for Flat, Bins,
GaussianMixture and Product priors; for others, L is the largest value at some labels. With several
outputs, k + f'' and L are row sums of absolute values of the Hessian, because all outputs move at
once. Laplace's kink has no l'' at r = p - y = 0; in L, k is then 1 / (scale |r|), the curvature of
the parabola that touches |r| from above. The kinks at the ends of the labels (robust.py) count,
too.

The loss of the outermost label decreases forever beyond it. Samples that are pushed out of the
range of the labels get an h that grows as exp(distance / OUTSIDE). That slows them down: at the
default learning rates they leave the range by a few OUTSIDE only, in any number of rounds. With a
learning rate of 1 and a sigma above the deviation of the labels they left it by up to 1.3 ranges.

All is multiplied by scale^2: with a flat prior and Gaussian noise the gradient is p - y and the
Hessian 1, as in both libraries, so settings for their L2 loss (min_child_weight, reg_lambda) apply.

N: samples; D: label dimensions.
"""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ..likelihoods import Likelihood, Location
from ..priors import Batch, Bins, Prior
from ..robust import Laplace
from .curvature import curvature_of
from .line import KINK
from .start import BalancedBooster

__all__ = ["BalancedBooster", "Objective", "objective"]

OUTSIDE = 0.05  # of the range of the labels


class Objective:
    """Objective for `LGBMRegressor(objective=...)`, `XGBRegressor(objective=...)`,
    `lightgbm.train({"objective": ...})` and `xgboost.train(obj=...)`: (labels, predictions, weights
    or None) or (predictions, dataset) -> gradient and Hessian.

    likelihood: Gaussian, Laplace or Huber with a scale that is a number, in the labels' unit.
    prior: Bins, a GaussianMixture, or any other that does not depend on a batch.
    learning_rate: the booster's own (LightGBM's is 0.1 by default, XGBoost's 0.3).

    Examples:
        >>> f = objective(Gaussian(sigma=5.0), Bins.fit(ages, np.arange(-0.5, 122)))
        >>> model = LGBMRegressor(objective=f).fit(x, ages)

    Both libraries call in both ways: the first from their scikit-learn classes, the second from
    `train`. Arrays are (N,), or (N, D) for XGBoost's several outputs.

    Neither library starts a custom objective from the labels' mean, and both begin with equal
    predictions for all. The first tree then brings them there: c h, with c = (p - mean) / eta, is
    added to its gradients, which moves every leaf by mean - p and alters no split. (reg_lambda
    shrinks that move: with XGBoost, say base_score=labels.mean(), and nothing is left to move.)
    """

    def __init__(
        self, likelihood: Location, prior: Prior, strength: float = 1.0, learning_rate: float = 0.1
    ):
        check(likelihood, prior, strength, learning_rate)
        self.likelihood = copy.deepcopy(likelihood).double().requires_grad_(False)
        self.prior = copy.deepcopy(prior).double().requires_grad_(False)
        self.strength, self.learning_rate = strength, learning_rate
        self.known: Any = None  # curvature for the labels and predictions of earlier rounds
        self.first_move: Any = None  # start, mean and longest step, (D,) each

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: ArrayLike | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if hasattr(y_pred, "get_label"):  # (predictions, dataset)
            y_true, y_pred, sample_weight = y_pred.get_label(), y_true, y_pred.get_weight()
        pred = np.asarray(y_pred, dtype=np.float64)
        shape, pred = pred.shape, pred.reshape(len(pred), -1 if pred.size else 1)
        try:
            labels = np.asarray(y_true, dtype=np.float64)
        except ValueError as error:
            raise ValueError(f"labels must be numbers: {error}") from None
        if labels.size != pred.size:
            raise ValueError(
                f"expected as many labels as predictions, {shape}, got {labels.shape}; LightGBM "
                "has one label per sample; use XGBoost for several."
            )
        labels = labels.reshape(pred.shape)
        if not np.isfinite(labels).all():
            bad = np.flatnonzero(~np.isfinite(labels).all(1))[:5].tolist()
            raise ValueError(f"labels must be finite; samples {bad} are not. Filter them first.")
        weight = np.asarray([] if sample_weight is None else sample_weight, dtype=np.float64)
        if weight.size not in (0, len(pred)) or not (weight >= 0).all():
            raise ValueError(f"expected a weight >= 0 for each of {len(pred)} samples")
        if weight.size and not weight.any():
            raise ValueError("all weights are zero; give at least one positive weight")
        if not len(pred):
            raise ValueError("expected labels and predictions, got none")
        if not np.isfinite(pred).all():
            raise ValueError(
                "The predictions are not finite: training diverged. Give the objective the "
                "booster's learning rate, or use a larger sigma."
            )
        weight = weight.reshape(-1, 1) if weight.size else np.ones((len(pred), 1))
        labels = np.where(weight > 0, labels, labels[weight.argmax()])  # weight 0: any label
        grad, hess = self._at_mean(labels, pred, weight)
        return (weight * grad).reshape(shape), (weight * hess).reshape(shape)

    def _at_mean(self, labels: NDArray, pred: NDArray, weight: NDArray) -> tuple[NDArray, NDArray]:
        if np.ptp(pred, axis=0).any():
            self._check_first_tree(pred)
            return self.derivatives(labels, pred)
        check_labels(self.likelihood, self.prior, labels)
        mean = np.broadcast_to((weight * labels).sum(0) / weight.sum(), pred.shape)
        if self.first_move is not None and np.array_equal(self.first_move[1], mean[0]):
            self._check_first_tree(pred)  # it had no split; other labels are another training
        grad, hess = self.derivatives(labels, mean)
        step = self.learning_rate * (np.abs(grad) / hess).max(0)
        self.first_move = pred[0].copy(), mean[0], step  # LightGBM hands out its own memory
        return grad + (pred - mean) / self.learning_rate * hess, hess

    def _check_first_tree(self, pred: NDArray) -> None:
        """Raise if the first tree moved further than it can: the booster's learning rate is then
        larger than the one given, and training may diverge.
        """
        if self.first_move is None:
            return
        (start, mean, step), self.first_move = self.first_move, None
        ratio = np.abs(pred - start).min(0) / np.maximum(np.abs(mean - start) + step, 1e-300)
        if (ratio > 1.5).any():
            raise ValueError(
                f"The booster's learning rate seems to be {self.learning_rate * ratio.max():.2g}, "
                f"but the objective has {self.learning_rate:g}; give both the same learning_rate."
            )

    def derivatives(self, labels: NDArray, pred: NDArray) -> tuple[NDArray, NDArray]:
        """(N, D), (N, D) -> scale^2 l' and scale^2 h, (N, D) each."""
        scale = self.likelihood.value.expand(pred.shape[1]).numpy()
        curvature, low, high, delta = self._curvature(labels, pred)
        shift, rows = curvature.at(pred)
        grad = self._plain_slope(labels, pred) * scale**2 + self.strength * shift
        largest = curvature.bound(pred, self.learning_rate * delta / scale)
        newton, largest = (1 + self.strength * (value - 1) for value in (rows, largest))
        if isinstance(self.likelihood, Laplace):
            largest += 1 / np.maximum(np.abs(pred - labels) / scale, KINK) - 1
        size, length = np.abs(grad), OUTSIDE * (high - low)
        hess = np.maximum(np.maximum(newton, size / delta), self.learning_rate / 2 * largest)
        beyond = np.where(grad < 0, pred - high, low - pred) / length
        brake = size / length * np.exp(np.minimum(beyond, 20))
        return grad, np.where(beyond > 0, np.maximum(hess, brake), hess)

    def _curvature(self, labels: NDArray, pred: NDArray) -> tuple[Any, ...]:
        """Curvature, smallest and largest label, and delta, (D,) each; all are kept while the
        labels are the same and the predictions stay in the range that they are computed for.
        """
        low, high = ends = np.stack([labels.min(0), labels.max(0)])
        inner = np.minimum(low, pred.min(0)), np.maximum(high, pred.max(0))
        if self.known is not None and np.array_equal(self.known[0], ends):
            _, outer, found = self.known
            if (outer[0] <= inner[0]).all() and (inner[1] <= outer[1]).all():
                return found
        scale = self.likelihood.value.expand(len(low)).numpy()
        span = inner[1] - inner[0] + scale
        outer = inner[0] - span / 4, inner[1] + span / 4
        reach = self.learning_rate * span
        reached = outer[0] - reach, outer[1] + reach
        curvature = curvature_of(self.likelihood, self.prior, labels, *reached)
        found = curvature, low, np.maximum(high, low + scale), span
        self.known = ends, outer, found
        return found

    def _plain_slope(self, labels: NDArray, pred: NDArray) -> NDArray:
        with torch.enable_grad():
            x = torch.tensor(pred, requires_grad=True)
            value = -self.likelihood.log_prob(torch.from_numpy(labels), x).sum()
            return torch.autograd.grad(value, x)[0].numpy()


objective = Objective


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
