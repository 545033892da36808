"""p_train of a Rebalancer: from training labels or a density, tempered, and as weighted atoms.

K: atoms, classes or bins; L: training labels.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..categorical import Categorical, Classes, Histogram
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior

MOST = 1024  # atoms of a one-dimensional prior
TAIL = 1e-3  # mass of a mixture beyond its range, on each side
REACH = 20.0  # standard deviations
COMPONENTS, LABELS_EACH = 8, 50  # a mixture fitted to labels has at most these components


class Samples(Bins):
    """Atoms that are samples of a density: `tempered` estimates it."""


def as_array(values: Any) -> NDArray[np.float64]:
    values = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    return np.array(values, dtype=np.float64)


def as_prior(given: Any) -> Prior:
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
        return Bins(grid, given(grid))
    labels = as_array(given)
    labels = labels[:, None] if labels.ndim == 1 else labels
    if labels.ndim != 2 or len(labels) < 2 or not np.isfinite(labels).all():
        raise ValueError(
            f"Expected at least two finite training labels (L,) or (L, D), got {labels.shape}."
        )
    if labels.shape[1] > 1:
        components = min(COMPONENTS, max(1, len(labels) // LABELS_EACH))
        return GaussianMixture.fit(labels, components)
    continuous = len(np.unique(labels)) > len(labels) / 2
    return (Samples if continuous else Bins)(*atoms_of(labels[:, 0]))


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
    below = np.bincount(left, total * (1 - share), MOST)
    return grid, below + np.bincount(left + 1, total * share, MOST)


def tempered(prior: Any, power: float) -> Prior:
    """Return p_train^power."""
    if power == 1 or isinstance(prior, Flat):
        return prior
    if isinstance(prior, GaussianMixture):
        if (dims := prior.means.shape[-1]) > 1:
            raise ValueError(
                f"A mixture of {dims} dimensions cannot be tempered, got power={power}; use "
                "strength."
            )
        return Bins(*cells(prior, power))
    if isinstance(prior, Samples):
        from scipy.stats import gaussian_kde

        centers, weights = (t.double().cpu().numpy() for t in (prior.centers, prior.weights))
        grid = np.linspace(centers.min(), centers.max(), MOST)
        return Bins(grid, gaussian_kde(centers, "silverman", weights)(grid), power)
    return Bins(prior.centers, prior.weights.double(), power)


def cells(mixture: GaussianMixture, power: float = 1.0) -> tuple[Tensor, Tensor]:
    """(K,) nodes that resolve every component of a mixture, and p^power times the cells' widths."""
    means, deviations = mixture.means.double().T, mixture.covariances[:, 0].double().sqrt().T
    offsets = torch.linspace(-8, 8, 161, dtype=torch.float64, device=means.device)
    nodes = (means + offsets[:, None] * deviations).unique()
    mass = (power * mixture.log_prob(nodes[:, None])).exp()
    return nodes, mass * torch.gradient(nodes)[0]


def central(mixture: GaussianMixture) -> NDArray:
    """(2,) quantiles of a mixture, between which nearly all of its mass lies."""
    nodes, mass = (t.cpu().numpy() for t in cells(mixture))
    return np.interp([TAIL, 1 - TAIL], np.cumsum(mass) / mass.sum(), nodes)


def label_range(prior: Any) -> Tensor:
    """(2, D): the smallest and the largest label; of a mixture, `REACH` standard deviations beyond
    the means.
    """
    if isinstance(prior, Bins):
        return torch.stack(prior.centers[:, None].double().aminmax(dim=0))
    means, covariances = prior.means.double(), prior.covariances.double()
    reach = REACH * covariances.diagonal(dim1=-2, dim2=-1).sqrt()
    return torch.stack([(means - reach).amin(0), (means + reach).amax(0)])


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
    offset = (torch.arange(parts, dtype=torch.float64).to(centers) + 0.5) / parts - 0.5
    spread = (centers[:, None] + width * offset).flatten()
    return spread, weights.repeat_interleave(parts) / parts


def log_frequencies(likelihood: Histogram | Categorical, given: Any) -> Tensor:
    """(K,) log p_train of bins or classes, from a prior or training labels (L,). A bin without
    labels counts as the rarest, so that nothing is divided by zero.
    """
    if isinstance(likelihood, Categorical) and not isinstance(given, Prior):
        given = Classes.fit(given, likelihood.classes)
    prior: Any = given if isinstance(given, Classes) else as_prior(given)
    if isinstance(prior, Flat):
        return torch.zeros(likelihood.width(1))
    if isinstance(prior, GaussianMixture):
        raise TypeError(
            f"A {type(likelihood).__name__} is divided by frequencies; give Bins, Classes or the "
            "training labels instead of a GaussianMixture."
        )
    mass = prior.weights
    if isinstance(likelihood, Histogram):
        place = likelihood.index(prior.centers[:, None].to(likelihood.edges))
        mass = mass.new_zeros(likelihood.bins).index_add(0, place, mass)
    return mass.clamp(min=mass[mass > 0].min()).log()


def divided(likelihood: Histogram | Categorical, logits: Tensor, log_p: Tensor) -> Tensor:
    """p_train(y | x) / p(y), decoded: logits (N, K), log p (K,) -> (N,)."""
    if logits.ndim != 2 or logits.shape[-1] != len(log_p):
        raise ValueError(f"Expected logits (N, {len(log_p)}), got {tuple(logits.shape)}.")
    return likelihood.decode(logits - log_p.to(logits))[:, 0]
