"""p_train of a Rebalancer: from training labels or a density, tempered, and as weighted atoms.

K: atoms, classes or bins; L: training labels.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batches import as_array
from ..categorical import Categorical, Classes, Histogram
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior

MOST = 1024  # atoms of a one-dimensional prior
TAIL = 1e-3  # mass of a mixture beyond its range, on each side
REACH = 20.0  # standard deviations
FEW = 20  # distinct labels are discrete ones
COMPONENTS, LABELS_EACH = 8, 50  # a mixture fitted to labels has at most these components


class Samples(Bins):
    """Atoms that stand for the cells around them: samples or nodes of a density.

    count: the number of labels behind them, with which `tempered` estimates the density.
    """

    count = 1.0


def is_labels(given: Any) -> bool:
    """Whether a prior was given as training labels: not as a prior or a gaussian_kde."""
    return not isinstance(given, Prior) and not hasattr(given, "covariance")


def are_discrete(labels: NDArray) -> bool:
    """Whether labels (L,) have few values, or whole multiples of a step, such as ages."""
    values = np.unique(labels)
    steps = np.ptp(values) / np.diff(values).min() if len(values) > 1 else 0.0
    return len(values) <= FEW or bool(steps < len(labels) / 2)


def as_prior(given: Any, weight: NDArray | None = None) -> Prior:
    """Return a prior from a prior, a scipy.stats.gaussian_kde, or training labels (L,) or (L, D),
    the former with weights (L,).

    Labels of one dimension are atoms, about `MOST` at most; of several, a mixture is fitted.
    """
    if isinstance(given, Bins | GaussianMixture | Flat):
        return given
    if isinstance(given, Prior):
        raise TypeError(
            f"Rebalancer has no inverse for a {type(given).__name__} prior; give Bins, a "
            "GaussianMixture, or the training labels."
        )
    if not is_labels(given):  # gaussian_kde
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
    if are_discrete(labels[:, 0]):
        return Bins(*atoms_of(labels[:, 0], weight))
    found = Samples(*atoms_of(labels[:, 0], weight))
    each = np.ones(len(labels)) if weight is None else weight
    found.count = each.sum() ** 2 / np.square(each).sum()
    return found


def atoms_of(labels: NDArray, weight: NDArray | None = None) -> tuple[NDArray, NDArray]:
    """(L,) -> the distinct labels and their weights; if there are more than `MOST`, those of nodes
    that are even in the labels or in their quantiles. A label is divided between two nodes.
    """
    values, place = np.unique(labels, return_inverse=True)
    total = np.bincount(place, weights=weight).astype(np.float64)
    if len(values) <= MOST:
        return values, total
    nodes = spaced(values, total, (values[0], values[-1]), MOST // 2, MOST // 2)
    left = np.searchsorted(nodes, values, "right").clip(1, len(nodes) - 1) - 1
    share = (values - nodes[left]) / (nodes[left + 1] - nodes[left])
    below = np.bincount(left, total * (1 - share), len(nodes))
    return nodes, below + np.bincount(left + 1, total * share, len(nodes))


def spaced(
    values: NDArray, weights: NDArray, ends: tuple[float, float], even: int, quantiles: int
) -> NDArray:
    """Return nodes between the ends: some evenly spaced, some at quantiles of the sorted values, so
    that a long tail does not leave the bulk without nodes."""
    rank = (np.cumsum(weights) - weights / 2) / weights.sum()
    found = np.interp(np.linspace(0, 1, quantiles), rank, values).clip(*ends)
    return np.unique(np.concatenate([np.linspace(*ends, even), found]))


def restored(about: dict[str, Any], state: dict[str, Any], prefix: str) -> Any:
    """Return the prior of a state dict; its keys begin with the prefix."""
    kinds = {kind.__name__: kind for kind in (Bins, Samples, GaussianMixture, Flat)}
    names = ("centers", "weights", "widths", "means", "covariances")
    found = {name: state[prefix + name] for name in names if prefix + name in state}
    if about["prior"] not in kinds:
        return None
    prior = kinds[about["prior"]](**found)
    prior.count = about["count"]
    return prior


def tempered(prior: Any, power: float) -> Prior:
    """Return p_train^power."""
    if power == 1 or isinstance(prior, Flat):
        return prior
    if power == 0:
        return Flat()
    if isinstance(prior, GaussianMixture):
        if (dims := prior.means.shape[-1]) > 1:
            raise ValueError(
                f"A mixture of {dims} dimensions cannot be tempered, got power={power}; use "
                "strength."
            )
        return Samples(*cells(prior, power))
    if isinstance(prior, Samples):
        from scipy.stats import gaussian_kde

        centers, weights = (t.double().cpu().numpy() for t in (prior.centers, prior.weights))
        nodes = np.union1d(centers, np.linspace(centers.min(), centers.max(), MOST))
        widths = np.gradient(nodes)
        density = gaussian_kde(centers, (0.75 * prior.count) ** -0.2, weights)(nodes)  # Silverman
        return Samples(nodes, density * widths, power, widths)
    return Bins(prior.centers, prior.weights.double(), power, prior.widths)


def cells(mixture: GaussianMixture, power: float = 1.0) -> tuple[Tensor, Tensor]:
    """(K,) nodes that resolve every component of a mixture, and p^power times the cells' widths.
    Where components overlap, the nodes are those of the narrowest."""
    order = mixture.covariances[:, 0, 0].argsort()
    means, variances = (t[order].double().T for t in (mixture.means, mixture.covariances[:, 0]))
    reach = math.ceil(640 / math.sqrt(power))  # in eightieths of a standard deviation
    offsets = torch.arange(-reach, reach + 1, dtype=torch.float64, device=means.device) / 80
    nodes = means + offsets[:, None] * variances.sqrt()  # (K, components), the narrowest first
    inside = (nodes[..., None] >= nodes[0]) & (nodes[..., None] <= nodes[-1])
    nodes = nodes[~inside.tril(-1).any(-1)].unique()
    mass = (power * mixture.log_prob(nodes[:, None])).exp()
    return nodes, mass * torch.gradient(nodes)[0]


def label_range(prior: Any) -> Tensor:
    """(2, D): the smallest and the largest label; of a mixture, `REACH` standard deviations beyond
    the means.
    """
    if isinstance(prior, Bins):
        return torch.stack(prior.centers[:, None].double().aminmax(dim=0))
    means, covariances = prior.means.double(), prior.covariances.double()
    reach = REACH * covariances.diagonal(dim1=-2, dim2=-1).sqrt()
    return torch.stack([(means - reach).amin(0), (means + reach).amax(0)])


def range_of(prior: Any, labels: NDArray | None, held_out: NDArray | None = None) -> Tensor:
    """(2,) or (2, D): the range of the training labels, if known. For a mixture of one dimension,
    otherwise of held-out labels and of nearly all of its mass; for one of several, any number.
    """
    mixture = isinstance(prior, GaussianMixture)
    if (labels is None and mixture and prior.means.shape[-1] > 1) or isinstance(prior, Flat):
        return torch.tensor([-math.inf, math.inf], dtype=torch.float64)
    if labels is None and mixture and held_out is not None:
        nodes, mass = (t.cpu().numpy() for t in cells(prior))
        ends = np.interp([TAIL, 1 - TAIL], (np.cumsum(mass) - mass / 2) / mass.sum(), nodes)
        labels = np.append(held_out, ends)
    if labels is None:
        return label_range(prior)[:, 0]
    return torch.from_numpy(np.stack([labels.min(0), labels.max(0)]).reshape(2, -1)).squeeze(1)


def atoms(prior: Any, scale: float) -> tuple[Tensor, Tensor]:
    """(K,) labels and (K,) weights. Where the noise is narrower than a bin or cell, its mass is
    spread evenly over its width, because the labels in it are.
    """
    if isinstance(prior, GaussianMixture):
        centers, weights = cells(prior)
    else:
        centers, order = prior.centers.double().sort()
        weights = prior.weights.double()[order]
    if len(centers) < 2:
        return centers, weights
    if isinstance(prior, GaussianMixture | Samples):
        edges = cell_edges(centers)
        low, widths = edges[:-1], edges.diff()
    else:  # bins may be missing between two others
        widths = centers.diff().min().expand_as(centers)
        low = centers - widths / 2
    parts = (widths / scale).ceil().clamp(1, max(1, 20 * MOST // len(centers))).long()
    first = parts.cumsum(0) - parts
    low, widths, centers, weights, first, parts = (
        t.repeat_interleave(parts) for t in (low, widths, centers, weights / parts, first, parts)
    )
    part = torch.arange(len(low)).to(low) - first
    return torch.where(parts > 1, low + widths * (part + 0.5) / parts, centers), weights


def cell_edges(labels: Tensor) -> Tensor:
    """(K,) rising -> (K + 1,) edges of the cells around them."""
    middle = (labels[1:] + labels[:-1]) / 2
    return torch.cat([2 * labels[:1] - middle[:1], middle, 2 * labels[-1:] - middle[-1:]])


def log_frequencies(likelihood: Histogram | Categorical, given: Any) -> Tensor:
    """(K,) log p_train of bins (a density, up to a constant) or classes, from a prior or training
    labels (L,). A bin without labels counts as the rarest, so that nothing is divided by zero.
    """
    if isinstance(likelihood, Categorical) and not isinstance(given, Prior):
        given = Classes.fit(given, likelihood.classes)
    elif is_labels(given):
        values, counts = np.unique(as_array(given), return_counts=True)
        given = Bins(values, counts.astype(np.float64))
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
        mass = mass / likelihood.edges.diff().to(mass)
    return mass.clamp(min=mass[mass > 0].min()).log()


def divided(likelihood: Histogram | Categorical, logits: Tensor, log_p: Tensor) -> Tensor:
    """p_train(y | x) / p(y), decoded: logits (N, K), log p (K,) -> (N,)."""
    if logits.ndim != 2 or logits.shape[-1] != len(log_p):
        raise ValueError(f"Expected logits (N, {len(log_p)}), got {tuple(logits.shape)}.")
    return likelihood.decode(logits - log_p.to(logits))[:, 0]
