"""Curvature of the log-evidence for one-dimensional labels; see curvature.py.

N: samples; K: components or bins; C: cells of a grid.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline, CubicSpline
from scipy.special import ndtr

from ..fast import log_evidence_slopes
from ..likelihoods import Gaussian, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from ..robust import WIDTH, Huber, Robust

CELLS = 4096  # of the grid
NODES = (1 << 11, 1 << 13, 1 << 15, 1 << 17)  # of a spline that every round uses
TOLERANCE = 5e-11  # of the spline, in units of the scale; otherwise the spline is not used
CHUNK = 1 << 20  # numbers held at once
TIGHT, DIVISIONS = 1.1, 12  # of the grid's bound
KINK = 1e-4  # scales: below, a kink is taken as smooth
NOTHING = 1e-25  # total share of the bins that are left out


class Line:
    """Labels of one dimension: a grid of bounds, and splines where these are accurate."""

    def __init__(self, likelihood: Location, prior: Prior, low: float, high: float):
        self.likelihood, self.prior, self.low = likelihood, prior, low
        self.scale = float(likelihood.value.max())
        self.family = _family(prior, self.scale) if isinstance(likelihood, Gaussian) else None
        self.near: tuple[NDArray, int] | None = None  # of each cell: the first bin, and how many
        most = steepest(likelihood, prior, 1)
        self.cell = (high - low) / CELLS
        self.most = self._largest(low + self.cell * np.arange(CELLS + 1)) if most is None else most
        self.ends = _held(prior) if isinstance(likelihood, Robust) else ()
        self.splines = self._splines(low, high)

    def at(self, p: NDArray) -> tuple[NDArray, NDArray]:
        return self._exact(p) if self.splines is None else tuple(f(p) for f in self.splines)

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        found = np.full_like(p, self.most)
        for end in self.ends:  # f' jumps there, by at most `slope`: half of a kink |p - end|
            slope = np.sqrt(self.most - 1)
            found += slope / 2 / np.maximum(np.abs(p - end) / self.scale, KINK)
        return found

    def _exact(self, p: NDArray) -> tuple[NDArray, NDArray]:
        if self.family is None:
            first, second = log_evidence_slopes(self.likelihood, self.prior, torch.tensor(p))
            return self.scale**2 * first.numpy(), 1 + self.scale**2 * second[..., 0].numpy()
        parts = []
        for some in self._chunks(p[:, 0]):
            family = self.family
            if self.near is not None:  # only the bins that matter in the cell
                first, width = self.near
                cell = np.clip((some - self.low) / self.cell, 0, CELLS - 1).astype(int)
                place = first[cell][:, None] + np.arange(width)
                family = family[0][place], family[1][place], family[2]
            shares, shifts, variance = _posterior(family, some / self.scale)
            mean = (shares * shifts).sum(1)
            parts.append((mean, (shares * (variance + (shifts - mean[:, None]) ** 2)).sum(1)))
        shift, spread = (np.concatenate(both)[:, None] for both in zip(*parts, strict=True))
        return self.scale * shift, spread

    def _chunks(self, points: NDArray) -> list[NDArray]:
        """Split predictions so that (N, K) arrays stay small."""
        width = 1 if self.family is None else self.near[1] if self.near else len(self.family[0])
        size = max(2, CHUNK // width)
        return [points[i : i + size] for i in range(0, len(points), size)]

    def _largest(self, ends: NDArray) -> float:
        """Return an upper bound of r between the ends (C + 1,), at most TIGHT times too large:
        cells with a larger bound are divided.
        """
        left, right, least, done, bounds = ends[:-1], ends[1:], 0.0, 0.0, ends
        for _ in range(DIVISIONS):
            bounds, found = self._bounds(left, right)
            least = max(least, found)
            open_ = bounds > TIGHT * least
            done = max(done, bounds[~open_].max(initial=0))
            if not open_.any():
                return done
            cuts = np.linspace(left[open_], right[open_], 17)
            left, right = cuts[:-1].ravel(), cuts[1:].ravel()
        return max(done, float(bounds.max()))

    def _bounds(self, left: NDArray, right: NDArray) -> tuple[NDArray, float]:
        """(C,), (C,) -> (C,): a bound of r in each cell, and the largest r at their ends."""
        shift, found = zip(*(self._exact(ends[:, None]) for ends in (left, right)), strict=True)
        if self.family is None:  # an unknown prior
            return np.maximum(*found)[:, 0], float(np.max(found))
        middles = (shift[0][:, 0] + left + shift[1][:, 0] + right) / 2 / self.scale
        halves, outer = [], []  # bins without weight, below and above
        for sign, ends in ((-1, left), (1, right)):
            moments, empty = [], []
            for points, middle in zip(self._chunks(ends), self._chunks(middles), strict=True):
                shares, shifts, variance = _posterior(self.family, points / self.scale)
                far = sign * (shifts + points[:, None] / self.scale - middle[:, None])
                moments.append((shares * _half_moment(far, variance)).sum(1))
                empty.append((np.cumsum(shares[:, ::-sign], 1) < NOTHING).sum(1))
            halves.append(np.concatenate(moments))
            outer.append(np.concatenate(empty))
        if self.near is None and not self.family[2].any():
            first, after = outer
            width = int((len(self.family[0]) - after - first).max())
            self.near = np.minimum(first, len(self.family[0]) - width), width
        return halves[0] + halves[1], float(np.max(found))

    def _splines(self, low: float, high: float) -> tuple[Any, Any] | None:
        last = 1e-3 if self.family is None else 1e-1
        for nodes in NODES:
            x = np.linspace(low, high, 2 * nodes + 1)
            shift, spread = (values[:, 0] for values in self._exact(x[:, None]))
            slope = (spread - 1)[::2]  # of the shift
            first = CubicHermiteSpline(x[::2], shift[::2], slope)
            second = CubicSpline(x[::2], spread[::2])
            off = np.abs(first(x) - shift).max() / self.scale
            off = max(off, np.abs(second(x) - spread).max())
            if off < TOLERANCE:
                return first, second
            if off > last / 16:  # more nodes do not help: the likelihood has kinks, or labels gaps
                break
            last = off
        return None


def steepest(likelihood: Location, prior: Prior, dims: int) -> float | None:
    """Return the largest row sum that any prediction can have; None if it depends on the prior."""
    if isinstance(prior, Flat):
        return 1.0
    if isinstance(likelihood, Gaussian):
        return None
    return 1 + dims * (likelihood.delta**2 if isinstance(likelihood, Huber) else 1.0)


def _held(prior: Prior) -> tuple[float, ...]:
    """Return the predictions beyond which robust likelihoods hold the evidence constant."""
    if isinstance(prior, Bins):
        return float(prior.centers.min()), float(prior.centers.max())
    if isinstance(prior, GaussianMixture):
        mean, width = prior.means[:, 0], WIDTH * prior.covariances[:, 0, 0].sqrt()
        return float((mean - width).min()), float((mean + width).max())
    return ()


def _family(prior: Prior, scale: float) -> tuple[NDArray, NDArray, NDArray] | None:
    """Log-weights, means and variances (K,) of the prior, in units of the scale."""
    if isinstance(prior, Bins):
        order = prior.centers.argsort()
        centers, weights = prior.centers[order].numpy(), prior.weights[order].numpy()
        return np.log(weights), centers / scale, np.zeros(1)
    if isinstance(prior, GaussianMixture):
        variance = prior.covariances[:, 0, 0].numpy() / scale**2
        return prior.weights.log().numpy(), prior.means[:, 0].numpy() / scale, variance
    return None


def _posterior(family: tuple[NDArray, ...], u: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """(N,) -> shares (N, K), means minus u (N, K) and variances of what each component explains."""
    log_weights, means, variances = family
    shifts = (means - u[:, None]) / (1 + variances)
    log = log_weights - np.log1p(variances) / 2 - shifts**2 * (1 + variances) / 2
    shares = np.exp(log - log.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True), shifts, variances / (1 + variances)


def _half_moment(mean: NDArray, variance: NDArray) -> NDArray:
    """E[max(y, 0)^2] of a normal y."""
    if not variance.any():
        return np.maximum(mean, 0) ** 2
    deviation = np.sqrt(variance)
    z = mean / deviation
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return (variance + mean**2) * ndtr(z) + mean * deviation * density
