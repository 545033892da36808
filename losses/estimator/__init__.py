"""Theorem 1 as a scikit-learn estimator: a small network or a linear model with any likelihood and
prior.

    fit      standardises inputs and labels, trains with the plain loss, then with the balanced one;
             sigma and the tempering power are chosen on held-out samples
    predict  decodes the likelihood's point prediction, in the labels' unit; a balanced one is
             clipped to the range of the training labels

Why it is clipped: with Gaussian noise the balanced loss of a label y continues beyond the largest
label y_max as (y_max - y) p / sigma^2, which is flat for y = y_max, so that nothing pulls such a
prediction back.

All samples are one batch, and L-BFGS takes the steps: a fit depends only on the data and
`random_state`, and a sample of weight two is the same as two samples.

N: samples; F: inputs; D: label dimensions; W: the likelihood's width.
"""

import warnings
from collections.abc import Sequence
from itertools import product
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state, validation
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from ..categorical import Histogram
from ..likelihoods import Likelihood, Location
from ..priors import Prior
from . import training
from .training import Data

LikelihoodName = Literal["gaussian", "laplace", "huber", "histogram"]
PriorName = Literal["auto", "flat", "bins", "mixture"]
POWERS = (0.0, 0.5, 1.0)  # of the label prior, tried by power="auto"
SIGMAS = (0.5, 0.75, 1.0)  # times the plain model's held-out error, tried by sigma="auto"
FEW = 20  # distinct samples below which nothing is held out, and sigma is 0.5


class BalancedRegressor(RegressorMixin, BaseEstimator):
    """Imbalanced regression as a scikit-learn estimator.

    likelihood: a name, or an instance of `Likelihood`.
    prior: a name ("auto": bins for one label dimension, else a mixture), or a `Prior`.
    hidden: widths of the hidden layers; () is a linear model.
    sigma: assumed noise, one number or one per label dimension (for a histogram: the width of the
        soft targets); "auto": chosen on held-out samples. Like all likelihoods and priors, and like
        the sigma of `diagnose`, in the labels' unit.
    power: tempers the prior, p_train^power aims at test labels distributed as p_train^(1 - power);
        "auto": chosen likewise. Only bins can be tempered.
    alpha: weight penalty, alpha * |W|^2 / N, as in ridge regression.
    max_iter: of L-BFGS, in both trainings; a ConvergenceWarning says if the second needs more.
    validation_fraction: share of held-out samples. The choices minimise the mean absolute error,
        averaged over equally wide ranges of the label.

    `score` is R^2 with equal weight for equally wide ranges of the label, so that GridSearchCV does
    not prefer the plain loss.

    After fit: `sigma_`, `power_` (chosen), `noise_` (of intervals: the held-out error's scale, else
    the loss's), `loss_` (of labels minus `center_`, over `scale_`), `network_`, `n_features_in_`.
    """

    _parameter_constraints: ClassVar[dict] = {
        "likelihood": [StrOptions(set(LikelihoodName.__args__)), Likelihood],
        "prior": [StrOptions(set(PriorName.__args__)), Prior],
        "hidden": ["array-like"],
        "sigma": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither"), "array-like"],
        "power": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        likelihood: LikelihoodName | Likelihood = "gaussian",
        prior: PriorName | Prior = "auto",
        hidden: Sequence[int] = (32,),
        sigma: float | Sequence[float] | Literal["auto"] = "auto",
        power: float | Literal["auto"] = "auto",
        alpha: float = 1.0,
        max_iter: int = 200,
        validation_fraction: float = 0.2,
        random_state: Any = 0,
    ):
        self.likelihood, self.prior, self.hidden = likelihood, prior, hidden
        self.sigma, self.power, self.alpha, self.max_iter = sigma, power, alpha, max_iter
        self.validation_fraction, self.random_state = validation_fraction, random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """X (N, F), y (N,) or (N, D), sample_weight (N,)."""
        X, y = validation.validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, multi_output=True, ensure_min_samples=2
        )
        weight = validation._check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        labels = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        self._check(labels, weight)
        self.shape_ = np.shape(y)[1:]
        X, labels, weight = training.distinct(X, labels, weight)
        if (constant := np.ptp(labels, axis=0) == 0).any():
            value = labels[0, constant][0]
            raise ValueError(f"All labels are {value:g}: nothing can be learnt.")
        self.input_center_, self.input_scale_ = training.standard(X, weight)
        self.center_, self.scale_ = training.standard(labels, weight)
        if isinstance(self.likelihood, Likelihood) or isinstance(self.prior, Prior):
            self.center_, self.scale_ = 0 * self.center_, 1 + 0 * self.scale_  # in their unit
        inputs = (X - self.input_center_) / self.input_scale_
        targets = (labels - self.center_) / self.scale_
        data = Data(*(torch.from_numpy(a) for a in (inputs, targets, weight)))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.ends_ = data.ends
        sigma, self.power_, noise = self._choose(data, seed)
        self.sigma_ = None
        if sigma is not None:
            self.sigma_ = (
                sigma * self.scale_ if len(sigma) > 1 else float(sigma[0] * self.scale_[0])
            )
        plain, _ = training.trained(self, data, training.plain(self, data), seed)
        self.loss_ = training.balanced(self, data, sigma, self.power_)
        self.network_, self.n_iter_ = training.trained(self, data, self.loss_, seed, plain)
        if noise is None:  # nothing was held out
            unit = training.standard(targets, weight)[1]
            scale = getattr(self.loss_.likelihood, "value", None)
            noise = (unit if sigma is None else sigma) if scale is None else scale.detach().numpy()
        self.noise_ = np.broadcast_to(noise, labels.shape[1]) * self.scale_
        if self.n_iter_ >= self.max_iter:
            warnings.warn(
                f"The training stopped after max_iter={self.max_iter} steps, before it converged; "
                "use a larger max_iter or a larger alpha.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _check(self, labels: NDArray, weight: NDArray) -> None:
        """Raise for settings, labels (N, D) or weights (N,) that cannot be used."""
        self._validate_params()
        dims, widths = labels.shape[1], list(self.hidden)
        if not all(isinstance(width, Integral) and width >= 1 for width in widths):
            raise ValueError(f"hidden must be a sequence of widths, such as (32,); got {widths}.")
        if np.ndim(self.sigma) and np.shape(self.sigma) != (dims,):
            raise ValueError(f"sigma must be one number, or {dims}: one per label dimension.")
        if self.power not in ("auto", 1) and not self._tempers(dims):
            raise ValueError(f"Only prior='bins' can be tempered, got power={self.power}.")
        if not weight.any():
            raise ValueError("All weights are zero: at least one non-zero weight is needed.")

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return R^2 with equal weight for equally wide ranges of the training labels."""
        pred = self.predict(X)
        pred, labels = (np.asarray(a, dtype=np.float64).reshape(len(pred), -1) for a in (pred, y))
        weight = np.ones(len(pred)) if sample_weight is None else np.asarray(sample_weight)
        ends = self.ends_.numpy() * self.scale_ + self.center_
        even = training.range_weights(labels, weight, ends)
        columns = zip(labels.T, pred.T, even.T, strict=True)
        return float(np.mean([r2_score(y, p, sample_weight=w) for y, p, w in columns]))

    def predict(self, X: Any) -> NDArray[np.float64]:
        """(N, F) -> (N,), or (N, D): the likelihood's point prediction."""
        pred = training.point(self._raw(X), self.loss_, self.ends_).numpy()
        return (pred * self.scale_ + self.center_).reshape(len(pred), *self.shape_)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> NDArray[np.float64]:
        """(N, F) -> (2, N) or (2, N, D): lower and upper ends of central intervals.

        They assume that all labels are equally frequent. A histogram's come from its bins, every
        other likelihood's from its shape and the scale `noise_`.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}.")
        raw = self._raw(X)
        likelihood = self.loss_.likelihood
        if isinstance(likelihood, Histogram):
            tails = ((1 - coverage) / 2, (1 + coverage) / 2)
            ends = [likelihood.quantile(raw, tail) for tail in tails]
        elif isinstance(likelihood, Location):
            width = training.quantile(likelihood, coverage) * self.noise_ / self.scale_
            width = torch.from_numpy(width)
            point = training.point(raw, self.loss_, self.ends_)
            ends = [point - width, point + width]
        else:
            raise TypeError(
                f"A {type(likelihood).__name__} likelihood gives no interval; use gaussian, "
                "laplace, huber or histogram."
            )
        scaled = np.stack([end.numpy() * self.scale_ + self.center_ for end in ends])
        return scaled.reshape(2, len(raw), *self.shape_)

    def _raw(self, X: Any) -> Tensor:
        """(N, F) -> (N, W): the network's output."""
        validation.check_is_fitted(self)
        X = validation.validate_data(self, X, dtype=np.float64, reset=False)
        with torch.no_grad():
            return self.network_(torch.from_numpy((X - self.input_center_) / self.input_scale_))

    def _tempers(self, dims: int) -> bool:
        return self.prior == "bins" or (self.prior == "auto" and dims == 1)

    def _choose(self, data: Data, seed: int) -> tuple[Any, Any, Any]:
        """Return sigma, power and the scale (D,) of their error on held-out samples, if any."""
        dims = data.labels.shape[1]
        unit = training.standard(data.labels.numpy(), data.weight.numpy())[1]
        named = not isinstance(self.likelihood, Likelihood)
        sigmas: list[Any] = [None]
        if named and not isinstance(self.sigma, str):
            sigmas = [np.broadcast_to(np.asarray(self.sigma, dtype=float), dims) / self.scale_]
        open_sigma = named and self.likelihood != "histogram" and sigmas[0] is None
        open_power = self.power == "auto" and self._tempers(dims)
        powers: Any = [1.0] if self.power == "auto" else [self.power]
        out = training.held_out(data.labels, self.validation_fraction, seed)
        inner, outer = data.take(~out), data.take(out)
        # nothing is held out either if all other labels are equal
        few = len(data.inputs) < FEW or bool((inner.ends[0] == inner.ends[1]).any())
        if few or not (open_sigma or open_power):
            return 0.5 * unit if open_sigma else sigmas[0], powers[0], None
        labels, weight = outer.labels.numpy(), outer.weight.numpy()
        even = training.range_weights(labels, weight, data.ends.numpy())
        plain, _ = training.trained(self, inner, training.plain(self, inner), seed)
        if open_sigma:
            error = training.errors(plain, training.plain(self, inner), outer, inner.ends) / unit
            size = np.sqrt(np.average(error**2, axis=0, weights=weight).mean())
            sigmas = [size * unit * factor for factor in SIGMAS]
        found = []
        for sigma, power in product(sigmas, POWERS if open_power else powers):
            loss = training.balanced(self, inner, sigma, power)
            network, _ = training.trained(self, inner, loss, seed, plain)
            error = training.errors(network, loss, outer, inner.ends)
            noise = training.spread(loss.likelihood, error, weight)
            balanced = np.average(np.abs(error), axis=0, weights=even)
            found.append(((balanced / unit).mean(), sigma, power, noise))
        return min(found, key=lambda each: each[0])[1:]
