"""Curvature of the log-evidence f(p) = log E_{y' ~ p_train}[ p_bal(y' | p) ], and upper bounds of
it over all predictions within a given distance.

In units of the scale, with the Hessian F of f,

    at(p)            scale^2 f'(p), and the row sums r_d = 1 + F_dd + sum_{e != d} |F_de|
    bound(p, reach)  at least r for all predictions that differ from p by at most `reach`

With Gaussian noise I + F = V, the covariance of the labels that p explains, whose mean is m. In one
dimension these labels form an exponential family in p, so E_p[g(y)] grows with p for every
increasing g. Hence, for all p between u and v, and c in the middle of m(u) and m(v),

    V(p) <= E_v[max(y - c, 0)^2] + E_u[max(c - y, 0)^2] <= V(u) + V(v) + (m(v) - m(u))^2 / 2.

Cells of a grid are divided until this is at most the largest V of the grid, or m hardly changes. So
the largest V of the grid is the largest of all, up to SLACK, also where it peaks in a gap of the
labels. In more dimensions,
components k and j of a mixture have posterior means that differ by a vector delta, which is also
the gradient of log(share_k / share_j); so both are bounded along any step, and with them
V = sum_k share_k C_k + sum_{k < j} share_k share_j delta delta^T.

With Laplace or Huber noise, f'' <= delta^2 (1 for Laplace), because the slope of a label's energy
is at most delta, apart from a kink at either end of the labels.

N: samples; D: label dimensions; K: components or bins.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import make_interp_spline

from ..likelihoods import Gaussian, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from ..robust import WIDTH, Huber, Robust
from ..structured import Product

CELLS = (1 << 11, 1 << 13, 1 << 15)  # of a spline that every round uses
TOLERANCE = 5e-11  # of the spline, in units of the scale; otherwise the spline is not used
SLACK, DIVISIONS = 0.01, 12  # of the largest V
KINK = 1e-4  # scales: below, a kink is taken as smooth
NEGLIGIBLE = 60.0  # log of the share of bins that are left out
PROBES = 256  # labels at which the curvature of an unknown prior is computed


class Curvature:
    """Curvature for labels (N, D) and predictions between low and high (D,) each. A `Product` has
    independent blocks of dimensions.
    """

    def __init__(
        self, likelihood: Location, prior: Prior, labels: NDArray, low: NDArray, high: NDArray
    ):
        product = isinstance(prior, Product) and labels.shape[1] % len(prior.priors) == 0
        priors: Any = prior.priors if product else [prior]
        ends = zip(*(np.split(a, len(priors), -1) for a in (labels, low, high)), strict=True)
        self.parts = [
            (Line if given[0].shape[1] == 1 else Space)(likelihood, part, *given)
            for part, given in zip(priors, ends, strict=True)
        ]

    def at(self, p: NDArray) -> tuple[NDArray, NDArray]:
        blocks = zip(self.parts, np.split(p, len(self.parts), 1), strict=True)
        first, rows = zip(*(part.at(x) for part, x in blocks), strict=True)
        return np.hstack(first), np.hstack(rows)

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        split = (np.split(a, len(self.parts), -1) for a in (p, reach))
        return np.hstack(
            [part.bound(*both) for part, *both in zip(self.parts, *split, strict=True)]
        )


class Space:
    """Labels of several dimensions that may depend on each other."""

    def __init__(self, likelihood: Location, prior: Prior, labels: NDArray, *ends: NDArray):
        self.likelihood, self.prior = likelihood, prior
        self.scale = likelihood.value.expand(labels.shape[1]).numpy()
        self.most: Any = None  # the largest row sum that any prediction can have
        if isinstance(prior, Flat) or getattr(prior, "power", 1) == 0:
            self.most = 1.0
        elif not isinstance(likelihood, Gaussian):
            slope = likelihood.delta if isinstance(likelihood, Huber) else 1.0
            self.most = 1 + len(self.scale) * slope**2
        else:
            self.most = self.largest(labels, *ends)

    def largest(self, labels: NDArray, *_: NDArray) -> Any:
        """Return the largest row sums with Gaussian noise; None: those of each step differ."""
        if isinstance(self.prior, GaussianMixture):
            return None
        some = np.random.default_rng(0).integers(len(labels), size=(2, PROBES))
        return self.at(np.concatenate([labels[some[0]], labels[some].mean(0)]))[1].max(0)

    def at(self, p: NDArray) -> tuple[NDArray, NDArray]:
        parts = [self.exact(p[i : i + 4096]) for i in range(0, len(p), 4096)]
        first, rows = (np.concatenate(both) for both in zip(*parts, strict=True))
        return first, rows

    def exact(self, p: NDArray) -> tuple[NDArray, NDArray]:
        scale, rows = torch.tensor(self.scale), []
        with torch.enable_grad():
            x = torch.tensor(p, requires_grad=True)
            value = self.prior.log_evidence(self.likelihood, x, x.detach())
            if not value.requires_grad:  # a flat prior
                return np.zeros_like(p), np.ones_like(p)
            (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
            for d in range(len(scale)):
                (row,) = torch.autograd.grad(first[:, d].sum(), x, retain_graph=True)
                row = row * scale[d] * scale
                rows.append(1 + row[:, d] - row[:, d].abs() + row.abs().sum(-1))
        return (scale**2 * first.detach()).numpy(), torch.stack(rows, -1).numpy()

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


class Line(Space):
    """Labels of one dimension."""

    def __init__(
        self, likelihood: Location, prior: Prior, labels: NDArray, low: NDArray, high: NDArray
    ):
        self.bins = None
        if isinstance(likelihood, Gaussian) and isinstance(prior, Bins) and prior.power:
            order, scale = prior.centers.argsort(), float(likelihood.value.max())
            self.bins = prior.centers[order].numpy() / scale, prior.weights[order].log().numpy()
        self.spline = None
        super().__init__(likelihood, prior, labels, low, high)
        self.kinks = _kinks(prior) if isinstance(likelihood, Robust) else ()
        self.spline = self._spline(low[0], high[0])

    def largest(self, labels: NDArray, *ends: NDArray) -> float:
        cells, least = np.linspace(*ends, 2 * CELLS[0] + 1), 0.0  # (ends, cells)
        for _ in range(DIVISIONS):
            shift, spread = (a.reshape(cells.shape) for a in self.at(cells.reshape(-1, 1)))
            least = max(least, float(spread.max()))
            moved = np.diff((cells + shift) / self.scale, axis=0) ** 2 / 2
            wide = (moved > SLACK * least) & (spread[1:] + spread[:-1] + moved > least)
            if not wide.any():
                break
            cells = np.linspace(cells[:-1][wide], cells[1:][wide], 17)
        return (1 + SLACK) * least

    def at(self, p: NDArray) -> tuple[NDArray, NDArray]:
        if self.spline is None:
            return super().at(p)
        shift, spread = np.split(self.spline(p[:, 0]), 2, 1)
        return self.scale * shift, spread

    def exact(self, p: NDArray) -> tuple[NDArray, NDArray]:
        """For bins, from those that are near enough to explain p."""
        if self.bins is None:
            return super().exact(p)
        (centers, log_weights), u = self.bins, p / self.scale
        after = np.searchsorted(centers, u).clip(1, len(centers) - 1)
        nearest = np.minimum(np.abs(u - centers[after - 1]), np.abs(u - centers[after]))
        reach = np.sqrt(nearest**2 + 2 * (NEGLIGIBLE + np.ptp(log_weights)))
        first, last = (np.searchsorted(centers, u + end) for end in (-reach, reach))
        width = int((last - first).max())
        place = np.minimum(first, len(centers) - width) + np.arange(width)  # (N, width)
        r = centers[place] - u
        log = log_weights[place] - r**2 / 2
        shares = np.exp(log - log.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        mean = (shares * r).sum(1, keepdims=True)
        return self.scale * mean, (shares * (r - mean) ** 2).sum(1, keepdims=True)

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        found = np.full_like(p, self.most)
        for end in self.kinks:  # f' jumps there, by at most `slope`: half of a kink |p - end|
            slope = np.sqrt(self.most - 1)
            found += slope / 2 / np.maximum(np.abs(p - end) / self.scale, KINK)
        return found

    def _spline(self, low: float, high: float) -> Any:
        last = 0.1
        for cells in CELLS:
            x = np.linspace(low, high, 2 * cells + 1)
            shift, spread = self.at(x[:, None])
            values = np.hstack([shift / self.scale, spread])
            spline = make_interp_spline(x[::2], values[::2], 7)
            off = np.abs(spline(x) - values).max()
            if off < TOLERANCE:
                return spline
            if off > last / 16:  # more cells do not help: the likelihood has kinks, or labels gaps
                break
            last = off
        return None


def _kinks(prior: Prior) -> tuple[float, ...]:
    """Return the predictions beyond which robust likelihoods hold the evidence constant."""
    if isinstance(prior, Bins):
        return float(prior.centers.min()), float(prior.centers.max())
    if isinstance(prior, GaussianMixture):
        mean, width = prior.means[:, 0], WIDTH * prior.covariances[:, 0, 0].sqrt()
        return float((mean - width).min()), float((mean + width).max())
    return ()
