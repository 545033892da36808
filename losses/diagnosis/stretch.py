"""Effect of Theorem 1 on predictions: how far it moves and stretches them, and the errors that
remain if all errors are Gaussian noise.

N: labels.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..fast.gradients import log_evidence_slopes
from ..posthoc.inverse import noise
from ..priors import Prior

RANGES = 20  # equally wide ranges in which labels are counted and errors are averaged
REGIONS = 5  # of the text
SAMPLES = 20_000  # labels with noise


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
