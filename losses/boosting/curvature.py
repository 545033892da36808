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
with gaps; line.py). In more dimensions, components k and j of a mixture have posterior means that
differ by a vector delta, which is also the gradient of log(share_k / share_j); so both are bounded
along any step, and with them V = sum_k share_k C_k + sum_{k < j} share_k share_j delta delta^T.

With Laplace or Huber noise, f'' <= delta^2 (1 for Laplace), because the slope of a label's energy
is at most delta, apart from a kink at either end of the labels.

N: samples; D: label dimensions; K: components.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from ..fast.gradients import log_evidence_slopes
from ..likelihoods import Gaussian, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from ..robust import WIDTH, Huber
from ..structured import Product
from .line import Line

KINK = 1e-4  # scales: below, a kink is taken as smooth
Pair = tuple[NDArray, NDArray]


def curvature_of(likelihood: Location, prior: Prior, low: NDArray, high: NDArray) -> Any:
    """Return the curvature for predictions between low and high (D,) each."""
    if isinstance(prior, Flat) or (isinstance(prior, Bins) and prior.power == 0):
        return Constant()
    if isinstance(prior, Product):
        return Blocks(likelihood, prior, low, high)
    if not isinstance(likelihood, Gaussian):
        return Kinked(likelihood, prior)
    scale = likelihood.value.expand(len(low)).numpy()
    if len(low) == 1:
        return Line(prior, float(scale[0]), float(low[0]), float(high[0]))
    return Space(prior, scale)


class Constant:
    """No curvature: a flat prior."""

    def at(self, p: NDArray) -> Pair:
        return np.zeros_like(p), np.ones_like(p)

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        return np.ones_like(p)


class Kinked:
    """Laplace or Huber noise, labels of one dimension."""

    def __init__(self, likelihood: Location, prior: Any):
        self.likelihood, self.prior = likelihood, prior
        self.scale = float(likelihood.value.max())
        self.slope = likelihood.delta if isinstance(likelihood, Huber) else 1.0
        if isinstance(prior, GaussianMixture):  # beyond the ends the evidence is held constant
            mean, width = prior.means[:, 0], WIDTH * prior.covariances[:, 0, 0].sqrt()
            self.ends = float((mean - width).min()), float((mean + width).max())
        else:
            self.ends = float(prior.centers.min()), float(prior.centers.max())

    def at(self, p: NDArray) -> Pair:
        first, second = log_evidence_slopes(self.likelihood, self.prior, torch.tensor(p))
        return self.scale**2 * first.numpy(), 1 + self.scale**2 * second.numpy()

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        found = np.full_like(p, 1 + self.slope**2)
        for end in self.ends:  # f' jumps there, by at most `slope`: half of a kink |p - end|
            found += self.slope / 2 / np.maximum(np.abs(p - end) / self.scale, KINK)
        return found


class Space:
    """Gaussian noise, a mixture of several dimensions that may depend on each other."""

    def __init__(self, prior: Any, scale: NDArray):
        weights, means, cov = (t.numpy() for t in (prior.weights, prior.means, prior.covariances))
        cov = cov / np.multiply.outer(scale, scale)
        self.scale, self.means = scale, means
        self.precision = np.linalg.inv(cov + np.eye(len(scale)))  # (K, D, D)
        self.within = cov @ self.precision  # C_k
        self.log_weights = np.log(weights) + np.linalg.slogdet(self.precision)[1] / 2

    def _components(self, p: NDArray) -> Pair:
        """Posterior means minus p (N, K, D), and log-shares (N, K) up to a constant."""
        x = (self.means - p[:, None]) / self.scale
        shifts = np.einsum("kde,nke->nkd", self.precision, x)
        return shifts, self.log_weights - (shifts * x).sum(2) / 2

    def at(self, p: NDArray) -> Pair:
        shifts, log_share = self._components(p)
        share = softmax(log_share, 1)
        mean = (share[..., None] * shifts).sum(1)
        far = shifts - mean[:, None]
        covariance = np.tensordot(share, self.within, 1)  # (N, D, D)
        covariance += (share[..., None] * far).swapaxes(1, 2) @ far
        return self.scale * mean, np.abs(covariance).sum(2)

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        shifts, log_share = self._components(p)
        i, j = np.triu_indices(len(self.means), 1)
        delta = np.abs(shifts[:, i] - shifts[:, j])  # (N, pairs, D)
        delta += np.abs(self.precision[i] - self.precision[j]) @ reach
        odds = np.abs(log_share[:, i] - log_share[:, j]) - delta @ reach
        product = 1 / (2 + 2 * np.cosh(np.clip(odds, 0, 700)))  # of the two shares
        between = (product[..., None] * delta * delta.sum(2, keepdims=True)).sum(1)
        return np.abs(self.within).sum(2).max(0) + between


class Blocks:
    """Independent blocks of dimensions."""

    def __init__(self, likelihood: Location, prior: Product, low: NDArray, high: NDArray):
        ends = (np.split(a, len(prior.priors)) for a in (low, high))
        parts: Any = zip(prior.priors, *ends, strict=True)
        self.parts = [curvature_of(likelihood, *given) for given in parts]

    def at(self, p: NDArray) -> Pair:
        blocks = zip(self.parts, np.split(p, len(self.parts), 1), strict=True)
        first, rows = zip(*(part.at(x) for part, x in blocks), strict=True)
        return np.hstack(first), np.hstack(rows)

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        blocks = zip(
            self.parts, *(np.split(a, len(self.parts), -1) for a in (p, reach)), strict=True
        )
        return np.hstack([part.bound(*both) for part, *both in blocks])
