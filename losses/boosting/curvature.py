"""Curvature of the log-evidence f(p) = log E_{y' ~ p_train}[ p_bal(y' | p) ], and upper bounds of
it.

In units of the scale, with the Hessian F of f,

    at(p)      scale^2 f'(p), and the row sums r_d = 1 + F_dd + sum_{e != d} |F_de|
    bound(p)   at least r for all predictions

With Gaussian noise I + F = V, the covariance of the labels that p explains, whose mean is m. In one
dimension these labels form an exponential family in p, so E_p[g(y)] grows with p for every
increasing g. Hence, for all p between u and v, and c in the middle of m(u) and m(v),

    V(p) <= E_v[max(y - c, 0)^2] + E_u[max(c - y, 0)^2] <= V(u) + V(v) + (m(v) - m(u))^2 / 2.

Grid cells are divided until this is at most the largest V of the grid, or m hardly changes. The
largest V of the grid, plus SLACK, is then taken as the largest of all, also where it peaks in a gap
of the labels. In more dimensions the grid is on lines between sampled pairs of labels, which is an
estimate. At most CELLS cells are divided at once, those with the largest bound.

With Laplace or Huber noise, f'' <= delta^2 (1 for Laplace), because the slope of a label's energy
is at most delta, apart from a kink at either end of the labels.

N: samples; D: label dimensions.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import make_interp_spline

from ..likelihoods import Gaussian, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from ..robust import WIDTH, Huber
from ..structured import Product

NODES = (1 << 11, 1 << 13, 1 << 15)  # of a spline that every round uses
TOLERANCE = 5e-11  # of the spline, in units of the scale; otherwise the spline is not used
SLACK, DIVISIONS = 0.01, 12  # of the largest V
KINK = 1e-4  # scales: below, a kink is taken as smooth
NEGLIGIBLE = 60.0  # log of the share of bins that are left out
CELLS = 1 << 14  # of the grid that are divided at once, over D^2
PAIRS = 64  # of labels, on lines between which the curvature is computed
GRID = 4096  # cells of the grid at first


class Curvature:
    """Curvature for labels (N, D) and predictions between low and high (D,) each."""

    def __init__(
        self, likelihood: Location, prior: Prior, labels: NDArray, low: NDArray, high: NDArray
    ):
        self.likelihood, self.prior = likelihood, prior
        self.scale = likelihood.value.expand(len(low)).numpy()
        self.bins = self.spline = None
        self.kinks: list[NDArray] = []
        self.most: Any = 1.0
        if isinstance(prior, Flat) or getattr(prior, "power", 1) == 0:  # constant evidence
            return
        if isinstance(likelihood, Gaussian):
            if isinstance(prior, Bins):
                centers, order = prior.centers.sort()
                self.bins = centers.numpy() / self.scale, prior.weights[order].log().numpy()
            self.most = self._largest(labels, low, high)
        else:
            self.slope = likelihood.delta if isinstance(likelihood, Huber) else 1.0
            self.most = 1 + len(low) * self.slope**2
            self.kinks = _kinks(prior)
        if len(low) == 1:
            self.spline = self._spline(low[0], high[0])

    def at(self, p: NDArray) -> tuple[NDArray, NDArray]:
        if self.spline is not None:
            shift, spread = np.split(self.spline(p[:, 0]), 2, 1)
            return self.scale * shift, spread
        exact = self._general if self.bins is None else self._near_bins
        parts = [exact(p[i : i + 4096]) for i in range(0, len(p), 4096)]
        first, rows = (np.concatenate(both) for both in zip(*parts, strict=True))
        return first, rows

    def _general(self, p: NDArray) -> tuple[NDArray, NDArray]:
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

    def _near_bins(self, p: NDArray) -> tuple[NDArray, NDArray]:
        """The same for Gaussian noise, from the bins that are near enough to explain p."""
        (centers, log_weights), u = self.bins, p / self.scale  # pyright: ignore
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

    def bound(self, p: NDArray) -> NDArray:
        found = np.full_like(p, self.most)
        for end in self.kinks:  # f' jumps there, by at most `slope`: half of a kink |p - end|
            found += self.slope / 2 / np.maximum(np.abs(p - end) / self.scale, KINK)
        return found

    def _largest(self, labels: NDArray, low: NDArray, high: NDArray) -> NDArray:
        """(D,): the largest row sums with Gaussian noise."""
        left, right = low[None], high[None]
        if len(low) > 1:
            left, right = labels[np.random.default_rng(0).integers(len(labels), size=(2, PAIRS))]
        grid, least = np.linspace(left, right, GRID // len(left) + 1), np.zeros(len(low))
        for _ in range(DIVISIONS):
            shift, rows = (a.reshape(grid.shape) for a in self.at(grid.reshape(-1, len(low))))
            least = np.maximum(least, rows.max((0, 1)))
            moved = np.abs(np.diff((grid + shift) / self.scale, axis=0))
            moved *= moved.sum(-1, keepdims=True) / 2
            bound = rows[1:] + rows[:-1] + moved
            wide = ((moved > SLACK * least) & (bound > least)).any(-1)
            if not wide.any():
                break
            highest = np.argsort(bound[wide].max(-1))[-CELLS // len(low) ** 2 :]
            grid = np.linspace(grid[:-1][wide][highest], grid[1:][wide][highest], 17)
        return (1 + SLACK) * least

    def _spline(self, low: float, high: float) -> Any:
        last = 0.1
        for nodes in NODES:
            x = np.linspace(low, high, 2 * nodes + 1)
            shift, spread = self.at(x[:, None])
            values = np.hstack([shift / self.scale, spread])
            spline = make_interp_spline(x[::2], values[::2], 7)
            off = np.abs(spline(x) - values).max()
            if off < TOLERANCE:
                return spline
            if off > last / 16:  # more nodes do not help: the likelihood has kinks, or labels gaps
                break
            last = off
        return None


def _kinks(prior: Prior) -> list[NDArray]:
    """Return the predictions (D,) beyond which robust likelihoods hold the evidence constant."""
    if isinstance(prior, Product):
        parts = [_kinks(part) for part in prior.priors]  # pyright: ignore[reportArgumentType]
        return [np.concatenate(ends) for ends in zip(*parts, strict=False)]
    if isinstance(prior, Bins):
        return [end[None].numpy() for end in prior.centers.aminmax()]
    if isinstance(prior, GaussianMixture):
        mean, width = prior.means[:, 0], WIDTH * prior.covariances[:, 0, 0].sqrt()
        return [(mean - width).min()[None].numpy(), (mean + width).max()[None].numpy()]
    return []
