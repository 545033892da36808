"""Curvature of the log-evidence f(p) = log E_{y' ~ p_train}[ p_bal(y' | p) ], and upper bounds of
it over all predictions within a given distance.

In units of the scale, with the Hessian F of f,

    at(p)            scale^2 f'(p), and the row sums r_d = 1 + F_dd + sum_{e != d} |F_de|
    bound(p, reach)  at least r for all predictions that differ from p by at most `reach`

With Gaussian noise I + F = V, the covariance of the labels that p explains. In one dimension these
labels form an exponential family in p, so E_p[g(y)] grows with p for every increasing g. Hence, for
all p between u and v and any c,

    V(p) <= E_p[(y - c)^2] <= E_v[max(y - c, 0)^2] + E_u[max(c - y, 0)^2].

Values on a grid thus bound V everywhere, also where it peaks between two points of the grid (labels
with gaps). In more dimensions, components k and j of a mixture have posterior means that differ by
a vector delta, which is also the gradient of log(share_k / share_j); so both are bounded along any
step, and with them V = sum_k share_k C_k + sum_{k < j} share_k share_j delta delta^T.

With Laplace or Huber noise, f'' <= delta^2 (1 for Laplace), because the slope of a label's energy
is at most delta, apart from a kink at either end of the labels.

N: samples; D: label dimensions; K: components.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..fast import log_evidence_slopes
from ..likelihoods import Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from ..structured import Product, split
from .line import Line, steepest

PROBES = 256  # labels at which the curvature of an unknown prior is computed


def curvature_of(
    likelihood: Location, prior: Prior, labels: NDArray, low: NDArray, high: NDArray
) -> Any:
    """Return the curvature for labels (N, D) and predictions between low and high (D,) each."""
    dims = labels.shape[1]
    if isinstance(prior, Bins) and prior.power == 0:
        prior = Flat()  # the evidence is constant
    if isinstance(prior, Product) and dims % len(prior.priors) == 0:
        count = len(prior.priors)
        ends = zip(*(np.split(a, count, -1) for a in (labels, low, high)), strict=True)
        parts: Any = zip(split(likelihood, count), prior.priors, ends, strict=True)
        return Blocks([curvature_of(noise, part, *given) for noise, part, given in parts])
    if dims == 1:
        return Line(likelihood, prior, float(low[0]), float(high[0]))
    return Space(likelihood, prior, labels)


class Space:
    """Labels of several dimensions that may depend on each other."""

    def __init__(self, likelihood: Location, prior: Prior, labels: NDArray):
        self.likelihood, self.prior = likelihood, prior
        self.scale = likelihood.value.expand(labels.shape[1]).numpy()
        self.most = steepest(likelihood, prior, labels.shape[1])
        if self.most is None and not isinstance(prior, GaussianMixture):  # an unknown prior
            some = np.random.default_rng(0).integers(len(labels), size=(2, PROBES))
            probes = np.concatenate([labels[some[0]], labels[some].mean(0)])
            self.most = self.at(probes)[1].max(0)

    def at(self, p: NDArray) -> tuple[NDArray, NDArray]:
        slopes = log_evidence_slopes(self.likelihood, self.prior, torch.tensor(p))
        first, second = (values.numpy() for values in slopes)
        second = second * np.multiply.outer(self.scale, self.scale)
        own = second.diagonal(axis1=1, axis2=2)
        return self.scale**2 * first, 1 + own - np.abs(own) + np.abs(second).sum(2)

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        if self.most is not None:
            return np.broadcast_to(self.most, p.shape)
        prior: Any = self.prior
        weights, mu, cov = (t.numpy() for t in (prior.weights, prior.means, prior.covariances))
        cov = cov / np.multiply.outer(self.scale, self.scale)
        precision = np.linalg.inv(cov + np.eye(len(self.scale)))  # (K, D, D)
        within = np.abs(cov @ precision).sum(2).max(0)  # (D,): the largest C_k
        x = (mu - p[:, None]) / self.scale  # (N, K, D)
        shifts = np.einsum("kde,nke->nkd", precision, x)
        log_share = np.log(weights) + np.linalg.slogdet(precision)[1] / 2 - (shifts * x).sum(2) / 2
        i, j = np.triu_indices(len(weights), 1)
        delta = np.abs(shifts[:, i] - shifts[:, j])  # (N, pairs, D)
        delta += np.abs(precision[i] - precision[j]) @ reach
        odds = np.abs(log_share[:, i] - log_share[:, j]) - delta @ reach
        product = 1 / (2 + 2 * np.cosh(np.clip(odds, 0, 700)))  # of the two shares
        return within + (product[..., None] * delta * delta.sum(2, keepdims=True)).sum(1)


class Blocks:
    """Independent blocks of dimensions."""

    def __init__(self, parts: Sequence[Any]):
        self.parts = parts

    def at(self, p: NDArray) -> tuple[NDArray, NDArray]:
        blocks = zip(self.parts, np.split(p, len(self.parts), 1), strict=True)
        first, rows = zip(*(part.at(x) for part, x in blocks), strict=True)
        return np.hstack(first), np.hstack(rows)

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        given = (np.split(a, len(self.parts), -1) for a in (p, reach))
        return np.hstack([part.bound(*a) for part, *a in zip(self.parts, *given, strict=True)])
