"""Curvature of the log-evidence for Gaussian noise and one-dimensional labels; see curvature.py.

N: samples; K: components or bins; C: cells of a grid.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline, CubicSpline
from scipy.special import ndtr, softmax

from ..priors import Bins

CELLS = 4096  # of the grid
NODES = (1 << 12, 1 << 15)  # of a spline that every round uses
TOLERANCE = 5e-11  # of the spline, in units of the scale; otherwise the spline is not used
CHUNK = 1 << 20  # numbers held at once
TIGHT, DIVISIONS = 1.1, 12  # of the grid's bound
NEGLIGIBLE = 60.0  # a bin whose share is exp(-60) of another's is left out


class Line:
    """The largest bound of a grid, and splines where these are accurate."""

    def __init__(self, prior: Any, scale: float, low: float, high: float):
        self.scale, self.family = scale, _family(prior, scale)
        self.most = self._largest(np.linspace(low, high, CELLS + 1))
        self.splines = self._splines(low, high)

    def at(self, p: NDArray) -> tuple[NDArray, NDArray]:
        if self.splines is not None:
            return self.splines[0](p), self.splines[1](p)
        shift, spread = self._exact(p[:, 0])
        return shift[:, None], spread[:, None]

    def bound(self, p: NDArray, reach: NDArray) -> NDArray:
        return np.full_like(p, self.most)

    def _chunks(self, *points: NDArray) -> Iterator[tuple[NDArray, ...]]:
        """Split arrays (N,) so that (N, K) arrays stay small."""
        size = max(2, CHUNK // len(self.family[0]))
        for start in range(0, len(points[0]), size):
            yield tuple(part[start : start + size] for part in points)

    def _exact(self, p: NDArray) -> tuple[NDArray, NDArray]:
        """scale^2 f' and r of predictions (N,)."""
        parts = []
        for (some,) in self._chunks(p):
            u = some / self.scale
            shares, shifts, variance = _posterior(self._near(u), u)
            mean = (shares * shifts).sum(1)
            parts.append((mean, (shares * (variance + (shifts - mean[:, None]) ** 2)).sum(1)))
        shift, spread = (np.concatenate(both) for both in zip(*parts, strict=True))
        return self.scale * shift, spread

    def _near(self, u: NDArray) -> tuple[NDArray, ...]:
        """The family; of bins only those that matter for u (N,)."""
        log_weights, centers, variances = self.family
        if variances.any():
            return self.family
        i = np.searchsorted(centers, u).clip(max=len(centers) - 1)
        nearest = np.minimum(np.abs(u - centers[i]), np.abs(u - centers[i - 1]))
        reach = np.sqrt(nearest**2 + 2 * (NEGLIGIBLE + np.ptp(log_weights)))
        first, last = (np.searchsorted(centers, u + side * reach) for side in (-1, 1))
        width = int((last - first).max())
        place = np.minimum(first, len(centers) - width)[:, None] + np.arange(width)
        return log_weights[place], centers[place], variances

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
        (low, spread), (high, other) = self._exact(left), self._exact(right)
        middles = (low + left + high + right) / 2 / self.scale
        parts = []
        for u, v, middle in self._chunks(left, right, middles):
            total = 0.0
            for sign, points in ((-1, u), (1, v)):
                shares, shifts, variance = _posterior(self.family, points / self.scale)
                far = sign * (shifts + points[:, None] / self.scale - middle[:, None])
                total += (shares * _half_moment(far, variance)).sum(1)
            parts.append(total)
        return np.concatenate(parts), float(max(spread.max(), other.max()))

    def _splines(self, low: float, high: float) -> tuple[Any, Any] | None:
        for nodes in NODES:
            x = np.linspace(low, high, 2 * nodes + 1)
            shift, spread = self._exact(x)
            found = (  # spread - 1 is the slope of the shift
                CubicHermiteSpline(x[::2], shift[::2], spread[::2] - 1),
                CubicSpline(x[::2], spread[::2]),
            )
            off = np.abs(found[0](x) - shift).max() / self.scale
            if max(off, np.abs(found[1](x) - spread).max()) < TOLERANCE:
                return found
        return None


def _family(prior: Any, scale: float) -> tuple[NDArray, NDArray, NDArray]:
    """Log-weights, means and variances (K,) of bins or a mixture, in units of the scale."""
    if isinstance(prior, Bins):
        order = prior.centers.argsort()
        centers, weights = prior.centers[order].numpy(), prior.weights[order].numpy()
        return np.log(weights), centers / scale, np.zeros(1)
    variance = prior.covariances[:, 0, 0].numpy() / scale**2
    return prior.weights.log().numpy(), prior.means[:, 0].numpy() / scale, variance


def _posterior(family: tuple[NDArray, ...], u: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """(N,) -> shares (N, K), means minus u (N, K) and variances of what each component explains."""
    log_weights, means, variances = family
    shifts = (means - u[:, None]) / (1 + variances)
    log = log_weights - np.log1p(variances) / 2 - shifts**2 * (1 + variances) / 2
    return softmax(log, 1), shifts, variances / (1 + variances)


def _half_moment(mean: NDArray, variance: NDArray) -> NDArray:
    """E[max(y, 0)^2] of a normal y."""
    if not variance.any():
        return np.maximum(mean, 0) ** 2
    deviation = np.sqrt(variance)
    z = mean / deviation
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return (variance + mean**2) * ndtr(z) + mean * deviation * density
