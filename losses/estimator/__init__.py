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

import copy
from collections.abc import Sequence
from itertools import product
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,  # pyright: ignore[reportPrivateImportUsage]
    check_is_fitted,
    validate_data,
)
from torch import Tensor

from ..balanced import BalancedLoss
from ..categorical import Histogram
from ..likelihoods import Gaussian, Likelihood, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from ..robust import Huber, Laplace
from . import training
from .training import Data, LikelihoodName, PriorName

POWERS = (0.0, 0.5, 1.0)  # of the label prior, tried by power="auto"
SIGMAS = (0.5, 0.75, 1.0)  # times the plain model's held-out error, tried by sigma="auto"
FEW = 20  # distinct samples below which nothing is held out, and sigma is 0.5
BINS = 40  # of the label prior and of the histogram
COMPONENTS = 4  # of a mixture


class BalancedRegressor(RegressorMixin, BaseEstimator):
    """Imbalanced regression as a scikit-learn estimator.

    likelihood: a name, or an instance of `Likelihood` in units of the labels' standard deviation.
    prior: a name ("auto": bins for one label dimension, else a mixture), or a `Prior`, likewise.
    hidden: widths of the hidden layers; () is a linear model.
    sigma: assumed noise, in standard deviations of the labels (for a histogram: the width of the
        soft targets); "auto": chosen on held-out samples.
    power: tempers the prior, p_train^power aims at test labels distributed as p_train^(1 - power);
        "auto": chosen likewise. Only bins can be tempered.
    alpha: weight penalty, alpha * |W|^2. max_iter: of L-BFGS, in each of the two trainings.
    validation_fraction: share of held-out samples. The choices minimise the mean absolute error,
        averaged over equally wide ranges of the label.

    After fit: `sigma_`, `power_` (chosen), `noise_` (the held-out error's scale, used by
    intervals), `loss_`, `network_`, `n_features_in_`.
    """

    def __init__(
        self,
        likelihood: LikelihoodName | Likelihood = "gaussian",
        prior: PriorName | Prior = "auto",
        hidden: Sequence[int] = (32,),
        sigma: float | Literal["auto"] = "auto",
        power: float | Literal["auto"] = "auto",
        alpha: float = 0.01,
        max_iter: int = 100,
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
        X, y = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, multi_output=True, ensure_min_samples=2
        )
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        labels = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        if not (np.abs(labels) < training.LARGEST).all():
            raise ValueError(
                f"The labels exceed the range of float64; keep them below {training.LARGEST}."
            )
        if (constant := np.ptp(labels[weight > 0], axis=0) == 0).any():
            value = labels[weight > 0][0, constant][0]
            raise ValueError(f"All labels are {value:g}: nothing can be learnt.")
        training.check(self, self._tempers(labels.shape[1]))
        self.shape_ = np.shape(y)[1:]
        X, labels, weight = training.distinct(X, labels, weight)
        self.input_center_, self.input_scale_ = training.standard(X, weight)
        self.center_, self.scale_ = training.standard(labels, weight)
        inputs, targets = (X - self.input_center_) / self.input_scale_, labels - self.center_
        data: Data = tuple(torch.from_numpy(a) for a in (inputs, targets / self.scale_, weight))
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        self.ends_ = training.ends(data)
        self.sigma_, self.power_, self.noise_ = self._choose(data, seed)
        plain, _ = training.trained(self, data, self._plain(data), seed)
        self.loss_ = self._loss(data, self.sigma_, self.power_)
        self.network_, self.n_iter_ = training.trained(self, data, self.loss_, seed, plain)
        return self

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
            width = torch.tensor(training.quantile(likelihood, coverage) * self.noise_)
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
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        with torch.no_grad():
            return self.network_(torch.from_numpy((X - self.input_center_) / self.input_scale_))

    def _tempers(self, dims: int) -> bool:
        return self.prior == "bins" or (self.prior == "auto" and dims == 1)

    def _choose(self, data: Data, seed: int) -> tuple[Any, Any, NDArray]:
        """Return sigma, power and the scale (D,) of their error on held-out samples."""
        dims = data[1].shape[1]
        given = isinstance(self.likelihood, Likelihood)
        histogram = self.likelihood == "histogram"
        powers: list[Any] = [1.0] if self.power == "auto" else [self.power]
        sigmas = [None] if given or (histogram and self.sigma == "auto") else [self.sigma]
        open_power = self.power == "auto" and self._tempers(dims)
        few = len(data[0]) < FEW
        if few or (sigmas != ["auto"] and not open_power):
            sigma = 0.5 if sigmas == ["auto"] else sigmas[0]
            scale = getattr(self._loss(data, sigma, powers[0]).likelihood, "value", sigma or 1.0)
            scale = torch.as_tensor(scale, dtype=torch.float64).detach()
            return sigma, powers[0], scale.expand(dims).numpy()
        out = training.held_out(data[1], self.validation_fraction, seed)
        inner, outer = ([t[rows] for t in data] for rows in (~out, out))
        plain, _ = training.trained(self, inner, self._plain(inner), seed)
        if sigmas == ["auto"]:
            error = training.errors(plain, self._plain(inner), outer, training.ends(inner))
            sigmas = [float(error.square().mean().sqrt()) * factor for factor in SIGMAS]
        best = (np.inf, sigmas[0], powers[0], np.ones(dims))
        for sigma, power in product(sigmas, POWERS if open_power else powers):
            loss = self._loss(inner, sigma, power)
            network, _ = training.trained(self, inner, loss, seed, plain)
            error = training.errors(network, loss, outer, training.ends(inner))
            spread = getattr(loss.likelihood, "spread", lambda r: r.square().mean().sqrt())
            noise = np.array([float(spread(column[:, None])) for column in error.T])
            best = min(
                best,
                (training.over_ranges(error, *outer[1:]), sigma, power, noise),
                key=lambda found: found[0],
            )
        return best[1:]

    def _plain(self, data: Data) -> BalancedLoss:
        """Loss of the first training: least squares, or the plain histogram."""
        if self.likelihood == "histogram" or isinstance(self.likelihood, Likelihood):
            likelihood = self._likelihood(data, None)
            if not isinstance(likelihood, Location):
                return BalancedLoss(likelihood, Flat())
        return BalancedLoss(Gaussian(), Flat()).double()

    def _loss(self, data: Data, sigma: Any, power: float) -> BalancedLoss:
        likelihood = self._likelihood(data, sigma)
        return BalancedLoss(likelihood, self._prior(data, likelihood, power)).double()

    def _likelihood(self, data: Data, sigma: Any) -> Likelihood:
        if isinstance(self.likelihood, Likelihood):
            return copy.deepcopy(self.likelihood).double()
        if self.likelihood == "histogram":
            ends = training.edges(data[1], BINS)
            return Histogram(ends, float(ends[1] - ends[0]) if sigma is None else sigma)
        kinds = {"gaussian": Gaussian, "laplace": Laplace, "huber": Huber}
        return kinds[self.likelihood](torch.tensor(sigma, dtype=torch.float64))

    def _prior(self, data: Data, likelihood: Likelihood, power: float) -> Prior:
        if isinstance(self.prior, Prior):
            return copy.deepcopy(self.prior).double()
        _, labels, weight = data
        if self.prior == "flat":
            return Flat()
        if self.prior == "mixture" or (self.prior == "auto" and labels.shape[1] > 1):
            components = min(COMPONENTS, len(labels))
            even = bool((weight == weight[0]).all())
            return GaussianMixture.fit(
                labels.numpy(), components, sample_weight=None if even else weight.numpy()
            )
        if labels.shape[1] > 1:
            raise ValueError(
                f"Bins are one-dimensional, the labels have {labels.shape[1]} dimensions; "
                "use prior='mixture'."
            )
        if isinstance(likelihood, Histogram):  # as soft as its targets: no bin is empty
            centers = (likelihood.edges[1:] + likelihood.edges[:-1]).double() / 2
            return Bins(centers, weight @ likelihood.soft_target(labels), power)
        # so fine that the noise of neighbouring centers overlaps
        scale = float(likelihood.value.min()) if isinstance(likelihood, Location) else 0.25
        reach = float(labels.max() - labels.min()) / scale
        ends = training.edges(labels, int(np.clip(2 * reach, BINS, 10 * BINS)))
        counts, _ = np.histogram(labels[:, 0].numpy(), ends.numpy(), weights=weight.numpy())
        return Bins((ends[1:] + ends[:-1]) / 2, torch.from_numpy(counts), power)
