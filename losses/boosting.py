"""Theorem 1 for gradient boosting: the custom objective of LightGBM and XGBoost.

With the log-evidence f(p) = log E_{y' ~ p_train}[ p_bal(y' | p) ] of a prediction p, the loss is

    l(p) = -log p_bal(y | p) + f(p),    l'(p) = -(log p_bal)'(y | p) + f'(p)

With Gaussian noise, where m and V are the mean and the variance of the labels that p explains
(those of p_train(y') p_bal(y' | p), normalised),

    sigma^2 l'(p) = m(p) - y,    sigma^2 l''(p) = V(p) / sigma^2 >= 0.

So the loss is convex in p, but flat where p leaves the labels, V -> 0, and there Newton's step
-l' / l'' has no bound. With Laplace or Huber noise l'' can be negative, too. The booster gets

    h(p) = max( k + f''(p),  eta / 2 * L ),    k = 1 / scale^2,    L = the largest k + f''

k is the largest second derivative of a Gaussian's or Huber's -log p_bal, and replaces the kink of
Laplace's; for a Gaussian, k + f'' is l'' itself. Why this converges: a leaf moves its n samples by
d = -eta G / H, with G = sum l' and H = sum h. By Taylor's theorem their loss changes by at most

    d G + d^2 n L / 2 = -eta G^2 / H * (1 - eta n L / 2 H) <= 0,  since H >= eta / 2 * n L.

So up to the given learning rate eta no tree increases the training loss. (A Laplace likelihood has
kinks: there, as with any L1 loss, predictions settle within eta * scale.)

All is multiplied by scale^2: with a flat prior and Gaussian noise the gradient is p - y and the
Hessian 1, as in both libraries, so settings for their L2 loss (min_child_weight, reg_lambda) apply.

N: samples; D: label dimensions.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicHermiteSpline, CubicSpline
from torch import Tensor

from .likelihoods import Likelihood, Location
from .priors import Batch, Prior, log_evidence_slopes

PROBES = 257  # predictions between the smallest and the largest label, to find L
NODES = (1 << 11, 1 << 13, 1 << 15)  # of a spline that is computed once and used in every round
TOLERANCE = 5e-11  # of the spline, in units of the scale; otherwise the spline is not used
HOPELESS = 1e-4  # more nodes would not help: the likelihood has kinks, or the labels are far apart


def objective(
    likelihood: Location, prior: Prior, strength: float = 1.0, learning_rate: float = 0.1
) -> "Objective":
    """Return the objective for `LGBMRegressor(objective=...)`, `XGBRegressor(objective=...)`,
    `lightgbm.train({"objective": ...})` and `xgboost.train(obj=...)`.

    likelihood: Gaussian, Laplace or Huber with a scale that is a number, in the labels' unit.
    prior: Bins, a GaussianMixture, or any other that does not depend on a batch.
    learning_rate: the booster's own (LightGBM's is 0.1 by default, XGBoost's 0.3).

    Example:
        >>> f = objective(Gaussian(sigma=5.0), Bins.fit(ages, edges=range(0, 122)))
        >>> model = LGBMRegressor(objective=f).fit(x, ages)
    """
    return Objective(likelihood, prior, strength, learning_rate)


class Objective:
    """(labels, predictions, weights or None) or (predictions, dataset) -> gradient and Hessian.

    Both libraries call in both ways: the first from their scikit-learn classes, the second from
    `train`. Arrays are (N,), or (N, D) for XGBoost's several outputs.

    Neither library starts a custom objective from the labels' mean, and both begin with equal
    predictions for all. The first tree then brings them there: c h, with c = (p - mean) / eta, is
    added to its gradients, which moves every leaf by mean - p and alters no split. (reg_lambda
    shrinks that move: with XGBoost, say base_score=labels.mean(), and nothing is left to move.)
    """

    def __init__(
        self,
        likelihood: Location,
        prior: Prior,
        strength: float = 1.0,
        learning_rate: float = 0.1,
    ):
        check(likelihood, prior)
        if not (is_real(strength) and strength >= 0):
            raise ValueError(f"strength must be a number >= 0, got {strength}")
        if not (is_real(learning_rate) and 0 < learning_rate <= 1):
            raise ValueError(f"learning_rate must be in (0, 1], got {learning_rate}")
        self.likelihood = copy.deepcopy(likelihood).double().requires_grad_(False)
        self.prior = copy.deepcopy(prior).double().requires_grad_(False)
        self.strength, self.learning_rate = strength, learning_rate
        self.curve: Curve | None = None
        self.first_move: tuple[NDArray, NDArray] | None = None  # from where to where, (D,) each

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
        if not len(pred) or not np.isfinite(pred).all():
            raise ValueError(
                "The predictions are not finite: training diverged. Give the objective the "
                "booster's learning rate, or use a larger sigma."
                if len(pred)
                else "expected labels and predictions, got none"
            )
        weight = weight.reshape(-1, 1) if weight.size else np.ones((len(pred), 1))
        grad, hess = self._at_mean(labels, pred, weight)
        return (weight * grad).reshape(shape), (weight * hess).reshape(shape)

    def _at_mean(self, labels: NDArray, pred: NDArray, weight: NDArray) -> tuple[NDArray, NDArray]:
        if np.ptp(pred, axis=0).any():
            self._check_first_tree(pred)
            return self.derivatives(labels, pred)
        mean = np.broadcast_to((weight * labels).sum(0) / weight.sum(), pred.shape)
        self.first_move = pred[0].copy(), mean[0]  # LightGBM hands out its own memory
        grad, hess = self.derivatives(labels, mean)
        return grad + (pred - mean) / self.learning_rate * hess, hess

    def _check_first_tree(self, pred: NDArray) -> None:
        """Raise if the first tree moved too far: the booster's learning rate is then larger than
        the one given, and training may diverge.
        """
        if self.first_move is None:
            return
        (start, mean), self.first_move = self.first_move, None
        far = np.abs(mean - start) > 20 * float(self.likelihood.value.max())
        ratio = (pred.mean(0) - start)[far] / (mean - start)[far]
        if (ratio > 1.5).any():
            raise ValueError(
                f"The booster's learning rate seems to be {self.learning_rate * ratio.max():.2g}, "
                f"but the objective has {self.learning_rate:g}; give both the same learning_rate."
            )

    def derivatives(self, labels: NDArray, pred: NDArray) -> tuple[NDArray, NDArray]:
        """(N, D), (N, D) -> scale^2 l' and scale^2 h, (N, D) each."""
        y, p = torch.from_numpy(labels), torch.tensor(pred)
        scale = self.likelihood.scale_for(p)
        first, second, largest = self._evidence(y, p)
        curvature, peak = (1 + self.strength * scale**2 * f for f in (second, largest))
        grad = scale**2 * (self._plain_slope(y, p) + self.strength * first)
        hess = torch.maximum(curvature, self.learning_rate / 2 * peak)
        return grad.numpy(), hess.numpy()

    def _evidence(self, y: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """f' and f'' at p (N, D), and the largest f'' (D,) there and between the labels' ends."""
        low, high = (float(end) for end in torch.aminmax(torch.cat([y, p])))
        if y.shape[-1] == 1:
            if self.curve is None or not self.curve.low <= low <= high <= self.curve.high:
                self.curve = Curve.fit(self.likelihood, self.prior, low, high)
            if self.curve.accurate:
                return self.curve.read(p)
        first, second = log_evidence_slopes(self.likelihood, self.prior, p)
        ends = torch.aminmax(y, dim=0)
        steps = torch.linspace(0, 1, PROBES, dtype=p.dtype)[:, None]
        probes = ends.min + steps * (ends.max - ends.min)
        between = log_evidence_slopes(self.likelihood, self.prior, probes)[1]
        return first, second, torch.maximum(second.amax(0), between.amax(0))

    def _plain_slope(self, y: Tensor, p: Tensor) -> Tensor:
        with torch.enable_grad():
            x = p.clone().requires_grad_()
            return torch.autograd.grad(-self.likelihood.log_prob(y, x).sum(), x)[0]


@dataclass(frozen=True)
class Curve:
    """Splines of f' and f'' for one-dimensional labels between `low` and `high`. Every round
    evaluates these two functions at N predictions, against all labels of the prior.
    """

    low: float
    high: float
    first: CubicHermiteSpline
    second: CubicSpline
    largest: float
    accurate: bool  # to TOLERANCE; not where the likelihood has kinks

    @classmethod
    def fit(cls, likelihood: Location, prior: Prior, low: float, high: float) -> "Curve":
        """Extend the range at both ends, so that predictions seldom leave the splines."""
        scale = float(likelihood.value.mean())
        beyond = (high - low) / 4 + scale
        low, high = low - beyond, high + beyond
        curve = None
        for nodes in NODES:
            every = torch.linspace(low, high, 2 * nodes + 1, dtype=torch.float64)
            first, second = log_evidence_slopes(likelihood, prior, every[:, None])
            x, f, g = every.numpy(), first[:, 0].numpy(), second[:, 0].numpy()
            value, slope = CubicHermiteSpline(x[::2], f[::2], g[::2]), CubicSpline(x[::2], g[::2])
            off = np.abs(value(x) - f).max() * scale, np.abs(slope(x) - g).max() * scale**2
            curve = cls(low, high, value, slope, float(g.max()), max(off) < TOLERANCE)
            if curve.accurate or max(off) > HOPELESS:
                break
        assert curve is not None
        return curve

    def read(self, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second = (torch.from_numpy(f(p.numpy())) for f in (self.first, self.second))
        return first, second, torch.tensor([self.largest], dtype=p.dtype)


def is_real(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def check(likelihood: Likelihood, prior: Prior) -> None:
    """Raise for a likelihood or a prior that a booster cannot be trained with."""
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
