"""Theorem 1 as a scikit-learn estimator: a small network or a linear model with any likelihood and
prior.

    fit      standardises inputs and labels, trains with the plain loss, then from there with the
             balanced one; sigma and the tempering power are chosen on rows that were held out
    predict  decodes the likelihood's point prediction, in the labels' own unit; a balanced one
             stays between the smallest and the largest training label

Why it stays: with Gaussian noise the balanced loss of a label y goes on beyond the largest label
y_max as (y_max - y) p / sigma^2, which is flat for y = y_max, so that nothing calls such a
prediction back. No label was seen there, and the loss counts on none.

All rows are one batch, and L-BFGS takes the steps: a fit depends on nothing but the data and
`random_state`, and a row of weight two is the same as two rows.

N: rows; F: inputs; D: label dimensions; W: the likelihood's width.
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
from torch import Tensor, nn

from ..balanced import BalancedLoss
from ..categorical import Histogram
from ..likelihoods import Gaussian, Likelihood, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from ..robust import Huber, Laplace
from .network import Data, histogram_quantile, quantile, trained
from .rows import LARGEST, distinct, edges, held_out, over_ranges, standard
from .settings import LikelihoodName, PriorName, check

POWERS = (0.0, 0.5, 1.0)  # of the label prior, tried by power="auto"
SIGMAS = (0.5, 0.75, 1.0)  # times the plain model's error on held-out rows, tried by sigma="auto"
FEW = 20  # distinct rows below which nothing is held out, and the middle of SIGMAS is taken
BINS = 40  # of the label prior and of the histogram
COMPONENTS = 4  # of a mixture


class BalancedRegressor(RegressorMixin, BaseEstimator):
    """Imbalanced regression as scikit-learn knows it.

    likelihood: a name, or an instance of `Likelihood` in units of the labels' standard deviation.
    prior: a name ("auto": bins for one label dimension, else a mixture), or a `Prior`, likewise.
    hidden: widths of the hidden layers; () is a linear model.
    sigma: the noise that the loss assumes, in standard deviations of the labels (the width of the
        soft targets for a histogram); "auto" chooses.
    power: tempers the prior, p_train^power aims at test labels distributed as p_train^(1 - power);
        "auto" chooses. Only bins can be tempered.
    alpha: the weight penalty, alpha * |W|^2. max_iter: of L-BFGS, in each of the two trainings.
    validation_fraction: of the rows, held out for the choices. They are judged by the mean absolute
        error, averaged over equally wide ranges of the label.

    After fit: `sigma_`, `power_` (chosen), `noise_` (the held-out error's scale, which intervals
    are made of), `loss_`, `network_`, `n_features_in_`.
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
        """(N, F), (N,) or (N, D), (N,): the fitted estimator itself."""
        X, y = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, multi_output=True, ensure_min_samples=2
        )
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        labels = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        if not (np.abs(labels) < LARGEST).all():
            raise ValueError(
                f"the labels span more than float64 can hold; keep them below {LARGEST}"
            )
        if (constant := np.ptp(labels[weight > 0], axis=0) == 0).any():
            value = labels[weight > 0][0, constant][0]
            raise ValueError(f"all labels are {value:g}: nothing can be learnt, or balanced")
        check(self.get_params(deep=False), self._tempers(labels.shape[1]))
        self.shape_ = np.shape(y)[1:]
        X, labels, weight = distinct(X, labels, weight)
        self.input_center_, self.input_scale_ = standard(X, weight)
        self.center_, self.scale_ = standard(labels, weight)
        inputs, targets = (X - self.input_center_) / self.input_scale_, labels - self.center_
        data: Data = tuple(torch.from_numpy(a) for a in (inputs, targets / self.scale_, weight))
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        self.ends_ = _ends(data)
        self.sigma_, self.power_, self.noise_ = self._choose(data, seed)
        plain, _ = self._train(data, self._plain(data), seed)
        self.loss_ = self._loss(data, self.sigma_, self.power_)
        self.network_, self.n_iter_ = self._train(data, self.loss_, seed, plain)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """(N, F) -> (N,), or (N, D): the likelihood's point prediction."""
        pred = _point(self._raw(X), self.loss_, self.ends_).numpy()
        return (pred * self.scale_ + self.center_).reshape(len(pred), *self.shape_)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> NDArray[np.float64]:
        """(N, F) -> (2, N) or (2, N, D): the lower and the upper ends of central intervals.

        They say where the label is if every label was as frequent beforehand. A histogram's come
        from its bins, every other likelihood's from its shape and the scale `noise_`.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage is a share between 0 and 1, got {coverage}")
        raw = self._raw(X)
        likelihood = self.loss_.likelihood
        if isinstance(likelihood, Histogram):
            tails = ((1 - coverage) / 2, (1 + coverage) / 2)
            ends = [histogram_quantile(likelihood, raw, tail) for tail in tails]
        elif isinstance(likelihood, Location):
            width = torch.tensor(quantile(likelihood, coverage) * self.noise_)
            point = _point(raw, self.loss_, self.ends_)
            ends = [point - width, point + width]
        else:
            raise TypeError(
                f"a {type(likelihood).__name__} likelihood gives no interval; use one of "
                "gaussian, laplace, huber, histogram."
            )
        scaled = np.stack([end.numpy() * self.scale_ + self.center_ for end in ends])
        return scaled.reshape(2, len(raw), *self.shape_)

    def _raw(self, X: Any) -> Tensor:
        """(N, F) -> (N, W): what the network puts out."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        with torch.no_grad():
            return self.network_(torch.from_numpy((X - self.input_center_) / self.input_scale_))

    def _tempers(self, dims: int) -> bool:
        return self.prior == "bins" or (self.prior == "auto" and dims == 1)

    def _choose(self, data: Data, seed: int) -> tuple[Any, Any, NDArray]:
        """sigma and power, and the scale of the error (D,) that they leave on held-out rows."""
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
        out = held_out(data[1], self.validation_fraction, seed)
        inner, outer = ([t[rows] for t in data] for rows in (~out, out))
        plain, _ = self._train(inner, self._plain(inner), seed)
        if sigmas == ["auto"]:
            error = _errors(plain, self._plain(inner), outer, _ends(inner))
            sigmas = [float(error.square().mean().sqrt()) * factor for factor in SIGMAS]
        best = (np.inf, sigmas[0], powers[0], np.ones(dims))
        for sigma, power in product(sigmas, POWERS if open_power else powers):
            loss = self._loss(inner, sigma, power)
            network, _ = self._train(inner, loss, seed, plain)
            error = _errors(network, loss, outer, _ends(inner))
            spread = getattr(loss.likelihood, "spread", lambda r: r.square().mean().sqrt())
            noise = np.array([float(spread(column[:, None])) for column in error.T])
            best = min(best, (over_ranges(error, *outer[1:]), sigma, power, noise), key=_first)
        return best[1:]

    def _plain(self, data: Data) -> BalancedLoss:
        """Where every training starts from: least squares, or the plain histogram."""
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
            ends = edges(data[1], BINS)
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
                f"bins are one-dimensional, the labels have {labels.shape[1]} dimensions; "
                "use prior='mixture'."
            )
        if isinstance(likelihood, Histogram):  # labels as soft as its targets: no bin is empty
            centers = (likelihood.edges[1:] + likelihood.edges[:-1]).double() / 2
            return Bins(centers, weight @ likelihood.soft_target(labels), power)
        # so fine that the noise around a center overlaps with its neighbours'
        scale = float(likelihood.value.min()) if isinstance(likelihood, Location) else 0.25
        reach = float(labels.max() - labels.min()) / scale
        ends = edges(labels, int(np.clip(2 * reach, BINS, 10 * BINS)))
        counts, _ = np.histogram(labels[:, 0].numpy(), ends.numpy(), weights=weight.numpy())
        return Bins((ends[1:] + ends[:-1]) / 2, torch.from_numpy(counts), power)

    def _train(
        self, data: Data, loss: BalancedLoss, seed: int, start: nn.Module | None = None
    ) -> tuple[nn.Module, int]:
        return trained(data, loss, seed, self.hidden, self.alpha, self.max_iter, start)


def _ends(data: Data) -> Tensor:
    """(2, D): the smallest and the largest label."""
    return torch.stack(torch.aminmax(data[1], dim=0))


def _point(raw: Tensor, loss: BalancedLoss, ends: Tensor) -> Tensor:
    """(N, W) -> (N, D) point predictions; balanced ones stay within the ends (2, D)."""
    pred = loss.likelihood.decode(raw)
    return pred if isinstance(loss.prior, Flat) else pred.clamp(*ends)


def _errors(network: nn.Module, loss: BalancedLoss, data: Data, ends: Tensor) -> Tensor:
    """(N, D): prediction minus label."""
    with torch.no_grad():
        return _point(network(data[0]), loss, ends) - data[1]


def _first(candidate: tuple) -> float:
    return candidate[0]
