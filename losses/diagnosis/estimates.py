"""Labels of `diagnose`: their check, candidate priors with held-out log-likelihoods, and the effect
of Theorem 1 on predictions: how far it moves and stretches them, and the errors that remain if all
errors are Gaussian noise.

N: labels.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ..fast import log_evidence_slopes
from ..mixture import GaussianMixture
from ..posthoc.inverse import noise
from ..priors import Bins, Prior

LARGEST = 1e37  # label
FOLDS = 5  # of the held-out log-likelihood
RANGES = 20  # equally wide ranges in which labels are counted and errors are averaged
REGIONS = 5  # of the text
SAMPLES = 20_000  # labels with noise
Density = Callable[[NDArray], NDArray]  # log-density of (N,) labels
Fit = Callable[[NDArray], tuple[Density, Prior]]


def numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return (N,) finite numbers, or raise an error that names the others."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        given = np.asarray(values)
        if given.dtype.kind in "cmM":
            raise TypeError(f"got {given.dtype}")
        found = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be real numbers: {error}") from None
    if found.size != (count := found.shape[0] if found.ndim else 1):
        raise ValueError(
            f"expected one label dimension, got {found.size // max(count, 1)}; diagnose each "
            "column separately, or call leverage(labels, pred, target) for held-out predictions"
        )
    found = found.reshape(-1)
    if (bad := np.flatnonzero(~np.isfinite(found))).size:
        raise ValueError(
            f"{name} must be finite; {len(bad)} are missing or infinite, first in row {bad[0]}. "
            "Drop these rows."
        )
    if not (np.abs(found) < LARGEST).all():
        raise ValueError(
            f"{name} reach {np.abs(found).max():.0e}, keep them below {LARGEST:.0e}: losses are "
            "computed in float32. Give them in another unit."
        )
    return found


def _bins(count: int) -> Fit:
    def fit(y: NDArray) -> tuple[Density, Prior]:
        edges = np.linspace(y.min(), y.max(), count + 1)
        counts, _ = np.histogram(y, edges)
        share = (counts + 0.5) / (counts + 0.5).sum()  # no bin has probability zero
        width = edges[1] - edges[0]

        def log_density(x: NDArray) -> NDArray:
            index = np.clip(((x - edges[0]) / width).astype(int), 0, count - 1)
            return np.log(share[index] / width)

        return log_density, Bins.fit(y, edges)

    return fit


def _mixture(components: int) -> Fit:
    def fit(y: NDArray) -> tuple[Density, Prior]:
        with warnings.catch_warnings():  # a mixture that has not converged is still a prior
            warnings.simplefilter("ignore")
            prior = GaussianMixture.fit(y, components, regularisation=1e-4)
        return lambda x: prior.log_prob(torch.from_numpy(x)[:, None]).numpy(), prior

    return fit


def _kde(y: NDArray) -> tuple[Density, Prior]:
    from scipy.stats import gaussian_kde

    kernel = gaussian_kde(y[:: max(1, len(y) // 5000)], "silverman")
    grid = np.linspace(y.min(), y.max(), 200)
    return lambda x: np.log(kernel(x) + 1e-300), Bins(grid, kernel(grid))


_EDGES = "np.linspace(labels.min(), labels.max(), {})"
CANDIDATES: dict[str, tuple[Fit, str]] = {  # and the code that builds them
    **{f"{n} bins": (_bins(n), f"Bins.fit(labels, {_EDGES.format(n + 1)})") for n in (10, 20, 50)},
    **{
        f"mixture of {n}": (_mixture(n), f"GaussianMixture.fit(labels, components={n})")
        for n in (1, 2, 4, 8)
    },
    "kernel density": (_kde, "Bins(grid, scipy.stats.gaussian_kde(labels, 'silverman')(grid))"),
}


def spread(y: NDArray) -> NDArray:
    """Spread repeated labels (such as whole years) evenly over the gap between neighbours, because
    a density at a repeated value has no bound.
    """
    distinct = np.unique(y)
    if len(distinct) > len(y) / 2:
        return y
    gap = np.median(np.diff(distinct))
    return y + gap * (np.random.default_rng(0).random(len(y)) - 0.5)


def held_out(fit: Fit, y: NDArray) -> float:
    """Return the cross-validated mean log-density."""
    y = spread(y)
    fold = np.random.default_rng(0).permutation(len(y)) % FOLDS
    parts = [fit(y[fold != k])[0](y[fold == k]).sum() for k in range(FOLDS)]
    return float(np.sum(parts) / len(y))


@dataclass(frozen=True)
class Region:
    """A fifth of the label range: its ends, its share of the labels, how far balancing moves a
    prediction in its middle, and how much it stretches predictions there.
    """

    low: float
    high: float
    share: float
    shift: float
    stretch: float


def stretch_of(prior: Prior, sigma: float, p: NDArray) -> tuple[NDArray, NDArray]:
    """(N,) -> the plain predictions m(p), and the stretch dp/dm."""
    x = torch.tensor(p, dtype=torch.float64)[:, None]
    first, second = log_evidence_slopes(noise("gaussian", sigma), prior.double(), x)
    m = (x + sigma**2 * first)[:, 0].numpy()
    return m, 1 / (1 + sigma**2 * second[:, 0, 0].numpy()).clip(1e-3, None)


def smoothed_density(prior: Prior, width: float, grid: NDArray) -> NDArray:
    x = torch.tensor(grid, dtype=torch.float64)[:, None]
    return prior.double().log_evidence(noise("gaussian", width), x, x).exp().numpy()


def regions_of(
    z: NDArray, prior: Prior, sigma: float, center: float, scale: float
) -> tuple[Region, ...]:
    """Regions of the labels center + scale z, for the prior and the noise of z."""
    edges = np.linspace(z.min(), z.max(), REGIONS + 1)
    counts, _ = np.histogram(z, edges)
    found = []
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        p = np.array([low, (low + high) / 2, high])
        m, _ = stretch_of(prior, sigma, p)
        steep = (high - low) / max(m[2] - m[0], 1e-3 * (high - low))  # the mean of dp/dm
        ends = center + scale * low, center + scale * high
        values = *ends, count / len(z), scale * (p[1] - m[1]), steep
        found.append(Region(*(float(value) for value in values)))
    return tuple(found)


def expected_errors(y: NDArray, prior: Prior, sigma: float, edges: NDArray) -> NDArray:
    """(2, 2): the RMSE of m and of p, over all samples and with equal weight for every range."""
    rng = np.random.default_rng(0)
    label = y[rng.integers(len(y), size=SAMPLES)]
    p = label + sigma * rng.normal(size=SAMPLES)
    m, _ = stretch_of(prior, sigma, p)
    square = (np.stack([m, p]) - label) ** 2  # (2, SAMPLES)
    index = np.clip(np.searchsorted(edges, label, side="right") - 1, 0, RANGES - 1)
    means = [square[:, index == k].mean(1) for k in np.unique(index)]
    return np.sqrt([square.mean(1), np.mean(means, 0)])
