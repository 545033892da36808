"""Losses, data and training of the estimator. `settings` is the estimator.

N: samples; F: inputs; D: label dimensions; W: the likelihood's width.
"""

import copy
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..balanced import BalancedLoss
from ..categorical import Histogram
from ..heteroscedastic import Heteroscedastic
from ..likelihoods import Gaussian, Likelihood, Location
from ..mixture import GaussianMixture
from ..posthoc.fitting import significant
from ..posthoc.inverse import NOISE
from ..priors import Bins, Flat, Prior
from ..robust import Huber, Laplace

BINS = 40  # of the label prior and of the histogram
COMPONENTS = 4  # of a mixture
RANGES = 10  # equally wide ranges of labels, over which errors are averaged
SETTLED = 1e-5  # change of the loss in a step that ends the training; smaller to learn a scale


class Data(NamedTuple):
    """Standardised inputs (N, F), labels (N, D), weights (N,)."""

    inputs: Tensor
    labels: Tensor
    weight: Tensor

    @property
    def ends(self) -> Tensor:
        """(2, D): the smallest and the largest label."""
        return torch.stack(torch.aminmax(self.labels, dim=0))

    def take(self, rows: Tensor) -> "Data":
        return Data(*(values[rows] for values in self))


def plain(settings: Any, data: Data) -> BalancedLoss:
    """Loss of the first training: least squares, or the plain histogram."""
    if settings.likelihood == "histogram" or isinstance(settings.likelihood, Likelihood):
        likelihood = _likelihood(settings, data, None)
        if not isinstance(likelihood, Location):
            return BalancedLoss(likelihood, Flat())
    return BalancedLoss(Gaussian(), Flat()).double()


def balanced(settings: Any, data: Data, sigma: Any, power: float) -> BalancedLoss:
    """sigma: (D,) in units of data; None: the likelihood's."""
    likelihood = _likelihood(settings, data, sigma)
    return BalancedLoss(likelihood, _prior(settings, data, likelihood, power)).double()


def _likelihood(settings: Any, data: Data, sigma: Any) -> Likelihood:
    if isinstance(settings.likelihood, Likelihood):
        return copy.deepcopy(settings.likelihood).double()
    if settings.likelihood == "histogram":
        ends = _edges(data, BINS)
        return Histogram(ends, float(ends[1] - ends[0] if sigma is None else sigma[0]))
    scale = torch.tensor(sigma, dtype=torch.float64)
    scale, floor = scale[0] if (scale == scale[0]).all() else scale, float(scale.min()) / 2
    kind: Any = NOISE[settings.likelihood]
    return kind(scale, floor=floor)


def _prior(settings: Any, data: Data, likelihood: Likelihood, power: float) -> Prior:
    if isinstance(settings.prior, Prior):
        return copy.deepcopy(settings.prior).double()
    _, labels, weight = data
    if settings.prior == "flat":
        return Flat()
    if settings.prior == "mixture" or (settings.prior == "auto" and labels.shape[1] > 1):
        components = min(COMPONENTS, len(labels))
        even = bool((weight == weight[0]).all())
        return GaussianMixture.fit(
            labels.numpy(), components, sample_weight=None if even else weight.numpy()
        )
    if labels.shape[1] > 1:
        raise ValueError(
            f"Bins are one-dimensional, the labels have {labels.shape[1]} dimensions; "
            "use prior='mixture'."
        )
    if isinstance(likelihood, Histogram):  # as soft as its targets: no bin is empty
        centers = (likelihood.edges[1:] + likelihood.edges[:-1]).double() / 2
        return Bins(centers, weight @ likelihood.soft_target(labels), power)
    # so fine that the noise of neighbouring centers overlaps; a learned scale stays above the bins
    location = isinstance(likelihood, Location)
    scale = float(likelihood.value.detach().min()) if location else float(labels.std()) / 4
    reach = float(labels.max() - labels.min()) / scale
    least = 10 * BINS if likelihood.learned else BINS
    ends = _edges(data, int(np.clip(2 * reach, least, 10 * BINS)))
    counts, _ = np.histogram(labels[:, 0].numpy(), ends.numpy(), weights=weight.numpy())
    widths = ends.diff() if likelihood.learned else None
    return Bins((ends[1:] + ends[:-1]) / 2, torch.from_numpy(counts), power, widths)


def _edges(data: Data, bins: int) -> Tensor:
    low, high = data.ends[:, 0].tolist()
    return torch.linspace(low, high, bins + 1, dtype=torch.float64)


class Affine(nn.Module):
    """Convert outputs (N, W) to the labels' unit; outputs beyond the first D stay."""

    def __init__(self, center: NDArray, scale: NDArray, width: int):
        super().__init__()
        rest = 0, width - len(center)
        self.center = nn.Buffer(torch.from_numpy(np.pad(center, rest)))
        self.scale = nn.Buffer(torch.from_numpy(np.pad(scale, rest, constant_values=1)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.center


def trained(
    settings: Any, data: Data, loss: BalancedLoss, seed: int, start: nn.Module | None = None
) -> tuple[nn.Module, int]:
    """Train a network (N, F) -> (N, W), from the weights of `start` if given; return it and the
    number of steps. A learned scale minimises -log p itself, not the loss in its unit.
    """
    inputs, labels, weight = data
    likelihood, width = loss.likelihood, loss.likelihood.width(labels.shape[1])
    total = weight.sum().square() / weight.square().sum()  # how many samples of equal weight
    center, scale = standard(labels.numpy(), weight.numpy())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = [inputs.shape[1], *settings.hidden, width]
        layers = [nn.Linear(*pair).double() for pair in pairwise(sizes)]
        modules: list[Any] = [each for layer in layers for each in (layer, nn.Tanh())][:-1]
        divisor = 1.0
        if isinstance(likelihood, Location | Heteroscedastic):
            modules.append(Affine(center, scale, width))
            shape = getattr(likelihood, "shape", likelihood)
            divisor = float(scale.mean()) ** (1 if isinstance(shape, Laplace) else 2)
        network = nn.Sequential(*modules)
        if start is not None:
            network.load_state_dict(start.state_dict())
        parameters = [*network.parameters(), *(p for p in loss.parameters() if p.requires_grad)]
        optimizer = torch.optim.LBFGS(
            parameters,
            max_iter=settings.max_iter,
            max_eval=2 * settings.max_iter,
            tolerance_change=SETTLED if len(parameters) == 2 * len(layers) else 1e-9,
            history_size=10,
            line_search_fn="strong_wolfe",
        )

        def step() -> Tensor:
            optimizer.zero_grad()
            size = torch.stack([layer.weight.square().sum() for layer in layers]).sum()
            value = loss(network(inputs), labels, weight)
            if likelihood.learned:  # the line search needs the function that the gradient is of
                flat = isinstance(loss.prior, Flat) or getattr(loss.prior, "power", 1) == 0
                value = value / likelihood.unit + flat * likelihood.log_norm(labels).detach()
            else:
                value = value / divisor
            value = value + settings.alpha * size / total
            value.backward()
            return value

        optimizer.step(step)
    if not all(p.isfinite().all() for p in parameters):
        raise FloatingPointError("The training diverged; use a larger sigma or a larger alpha.")
    state = optimizer.state[parameters[0]]
    cut = state["func_evals"] >= 2 * settings.max_iter
    return network, settings.max_iter if cut else state["n_iter"]


def point(raw: Tensor, loss: BalancedLoss, ends: Tensor) -> Tensor:
    """(N, W) -> (N, D) point predictions; balanced ones are clipped to the ends (2, D)."""
    pred = loss.likelihood.decode(raw)
    return pred if isinstance(loss.prior, Flat) else pred.clamp(*ends)


def errors(network: nn.Module, loss: BalancedLoss, data: Data, ends: Tensor) -> NDArray:
    """(N, D): prediction minus label."""
    with torch.no_grad():
        return (point(network(data.inputs), loss, ends) - data.labels).numpy()


def spread(likelihood: Likelihood, error: NDArray, weight: NDArray) -> NDArray:
    """(N, D), (N,) -> (D,): the likelihood's scale of weighted errors."""
    if isinstance(likelihood, Laplace):
        return np.average(np.abs(error), axis=0, weights=weight)
    if isinstance(likelihood, Huber):
        weights = np.broadcast_to(weight[:, None], error.shape)
        median = np.quantile(np.abs(error), 0.5, 0, method="inverted_cdf", weights=weights)
        return median / 0.6745
    return np.sqrt(np.average(error**2, axis=0, weights=weight))


def quantile(likelihood: Location, coverage: float) -> float:
    """Return how many scales to either side of the prediction hold this share of the mass."""
    r = torch.linspace(0, 60, 60_001, dtype=torch.float64)
    mass = torch.cumulative_trapezoid(torch.exp(-likelihood.energy(r)), r)
    return float(np.interp(coverage, (mass / mass[-1]).numpy(), r[1:].numpy()))


def distinct(X: NDArray, labels: NDArray, weight: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return each distinct sample once, with its total weight: copies cannot be on both sides of a
    split, and their order does not matter.
    """
    rows, place = np.unique(np.hstack([X, labels]), axis=0, return_inverse=True)
    total = np.bincount(place.ravel(), weights=weight)
    kept = significant(total, len(rows))
    rows, total = rows[kept], total[kept]
    return rows[:, : X.shape[1]].copy(), rows[:, X.shape[1] :].copy(), total


def standard(rows: NDArray, weight: NDArray) -> tuple[NDArray, NDArray]:
    """Return the weighted mean and standard deviation of each column; 1 for a constant one."""
    unit = np.abs(rows).max(axis=0)
    unit = np.where(unit > 0, unit, 1.0)  # so that no square overflows
    rows, weight = rows / unit, weight / weight.max()
    center = np.average(rows, axis=0, weights=weight)
    scale = np.sqrt(np.average((rows - center) ** 2, axis=0, weights=weight))
    return center * unit, np.where(scale <= 1e-12, 1.0, scale * unit)


def held_out(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """(N,) mask of held-out samples: this share of them, evenly along the sorted labels."""
    count, rng = len(labels), np.random.default_rng(seed)
    share = np.clip(fraction, 2 / count, 1 - 2 / count)
    ranks = np.floor(share * np.arange(count + 1) + rng.random())
    mask = np.zeros(count, dtype=bool)
    mask[np.lexsort((rng.random(count), labels[:, 0].numpy()))] = np.diff(ranks) > 0
    return torch.from_numpy(mask)


def range_weights(labels: NDArray, weight: NDArray, ends: NDArray) -> NDArray:
    """(N, D), (N,), (2, D) -> (N, D): weights that sum to one in each of RANGES equally wide ranges
    of each label dimension that has any.
    """
    span = ends[1] - ends[0]
    place = (labels - ends[0]) / np.where(span > 0, span, 1) * RANGES
    place = np.clip(place, 0, RANGES - 1).astype(int)
    totals = np.stack([np.bincount(column, weight, RANGES)[column] for column in place.T], 1)
    return weight[:, None] / np.where(totals > 0, totals, 1)
