"""p_train of a Rebalancer: from training labels or a density, tempered, and as weighted atoms.

K: atoms; L: training labels.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior

MOST = 1024  # atoms of a one-dimensional prior
COMPONENTS, LABELS_EACH = 8, 50  # a mixture fitted to labels has at most these components


def as_array(values: Any) -> NDArray[np.float64]:
    values = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    return np.array(values, dtype=np.float64)


def as_prior(given: Any, weight: NDArray | None = None) -> Prior:
    """Return a prior from a prior, a scipy.stats.gaussian_kde, or training labels (L,) or (L, D).

    Labels of one dimension are atoms, at most `MOST`; of several, a mixture is fitted to them.
    """
    if isinstance(given, Bins | GaussianMixture | Flat):
        return given
    if isinstance(given, Prior):
        raise TypeError(
            f"Rebalancer has no inverse for a {type(given).__name__} prior; give Bins, a "
            "GaussianMixture, or the training labels."
        )
    if hasattr(given, "covariance") and hasattr(given, "dataset"):  # gaussian_kde
        if len(given.dataset) > 1:
            raise ValueError("A kernel density must have one dimension; give a GaussianMixture.")
        reach = 4 * math.sqrt(float(given.covariance.item()))
        grid = np.linspace(given.dataset.min() - reach, given.dataset.max() + reach, MOST)
        return Bins(torch.from_numpy(grid), torch.from_numpy(given(grid)))
    labels = as_array(given)
    labels = labels[:, None] if labels.ndim == 1 else labels
    if labels.ndim != 2 or len(labels) < 2 or not np.isfinite(labels).all():
        raise ValueError(
            f"Expected at least two finite training labels (L,) or (L, D), got {labels.shape}."
        )
    if labels.shape[1] > 1:
        components = min(COMPONENTS, max(1, len(labels) // LABELS_EACH))
        return GaussianMixture.fit(labels, components, sample_weight=weight)
    centers, counts = atoms_of(labels[:, 0], weight)
    return Bins(torch.from_numpy(centers), torch.from_numpy(counts))


def atoms_of(labels: NDArray, weight: NDArray | None = None) -> tuple[NDArray, NDArray]:
    """(L,) -> the distinct labels and their weights; if there are more than `MOST`, those of an
    even grid, between whose two nearest nodes a label is divided.
    """
    values, place = np.unique(labels, return_inverse=True)
    total = np.bincount(place, weights=weight).astype(np.float64)
    if len(values) <= MOST:
        return values, total
    grid = np.linspace(values[0], values[-1], MOST)
    position = (values - values[0]) / (values[-1] - values[0]) * (MOST - 1)
    left = np.minimum(position.astype(int), MOST - 2)
    share = position - left
    below, above = (
        np.bincount(index, weights=total * part, minlength=MOST)
        for index, part in ((left, 1 - share), (left + 1, share))
    )
    return grid, below + above


def tempered(prior: Any, power: float, samples: bool) -> Prior:
    """Return p_train^power. samples: the atoms are samples of a density, which is estimated."""
    if power == 1 or isinstance(prior, Flat):
        return prior
    if isinstance(prior, GaussianMixture):
        if prior.means.shape[-1] > 1:
            raise ValueError(
                f"A mixture of {prior.means.shape[-1]} dimensions cannot be tempered, got power="
                f"{power}; use strength."
            )
        centers, mass = cells(prior, power)
        return Bins(centers, mass)
    if samples:
        from scipy.stats import gaussian_kde

        centers, weights = (t.double().cpu().numpy() for t in (prior.centers, prior.weights))
        density = gaussian_kde(centers, "silverman", weights)
        grid = np.linspace(centers.min(), centers.max(), MOST)
        return Bins(torch.from_numpy(grid), torch.from_numpy(density(grid)), power)
    return Bins(prior.centers, prior.weights.double(), power)


def cells(mixture: GaussianMixture, power: float = 1.0) -> tuple[Tensor, Tensor]:
    """(K,) nodes that resolve every component of a mixture, and p^power times the cells' widths."""
    means, deviations = (t.double().cpu().numpy() for t in moments(mixture))
    grid = np.unique((means + np.linspace(-8, 8, 161)[:, None] * deviations).ravel())
    nodes, widths = torch.from_numpy(grid), torch.from_numpy(np.gradient(grid))
    return nodes, (power * mixture.cpu().log_prob(nodes[:, None])).exp() * widths


def moments(mixture: GaussianMixture) -> tuple[Tensor, Tensor]:
    """Means and standard deviations (K,) of a one-dimensional mixture."""
    return mixture.means[:, 0], mixture.covariances[:, 0, 0].sqrt()


def label_range(prior: Prior) -> tuple[float, float]:
    """Return the smallest and largest label; a mixture and a flat prior have none."""
    if isinstance(prior, Bins):
        return float(prior.centers.min()), float(prior.centers.max())
    return -math.inf, math.inf


def atoms(prior: Any, scale: float) -> tuple[Tensor, Tensor]:
    """(K,) labels and (K,) weights. Where the noise is narrower than the bins, each bin is spread
    evenly over its width, because the labels in it are.
    """
    if isinstance(prior, GaussianMixture):
        return cells(prior)
    centers, order = prior.centers.double().sort()
    weights = prior.weights.double()[order]
    width = float(centers.diff().min()) if len(centers) > 1 else 0.0
    parts = min(math.ceil(width / scale), max(1, 20 * MOST // len(centers)))
    if parts <= 1:
        return centers, weights
    offset = (torch.arange(parts, dtype=torch.float64) + 0.5) / parts - 0.5
    spread = (centers[:, None] + width * offset).flatten()
    return spread, weights.repeat_interleave(parts) / parts
