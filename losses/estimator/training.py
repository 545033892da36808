"""Settings, data and training of the estimator.

N: samples; F: inputs; D: label dimensions; W: the likelihood's width.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..balanced import BalancedLoss
from ..likelihoods import Likelihood, Location
from ..priors import Flat, Prior

LikelihoodName = Literal["gaussian", "laplace", "huber", "histogram"]
PriorName = Literal["auto", "flat", "bins", "mixture"]
Data = Sequence[Tensor]  # standardised inputs (N, F), standardised labels (N, D), weights (N,)
RANGES = 10  # equally wide ranges of labels, over which the held-out error is averaged
LARGEST = 1e307  # label whose distance to another one is still a number


def check(settings: Any, tempers: bool) -> None:
    """Raise for settings that only the estimator checks; the losses check their own."""
    for name, low in (("sigma", 0), ("power", -1e-12)):
        value = getattr(settings, name)
        if value != "auto" and not (_is_number(value) and value > low):
            raise ValueError(f'{name} must be a positive number or "auto", got {value!r}.')
    kinds = {"likelihood": (LikelihoodName, Likelihood), "prior": (PriorName, Prior)}
    for name, (known, kind) in kinds.items():
        value = getattr(settings, name)
        if not isinstance(value, kind) and value not in known.__args__:
            raise ValueError(
                f"{name} must be one of {', '.join(known.__args__)}, or an instance of a "
                f"{kind.__name__}; got {value!r}."
            )
    if settings.power not in ("auto", 1, 1.0) and not tempers:
        raise ValueError(f"Only prior='bins' can be tempered, got power={settings.power}.")
    if not 0 < settings.validation_fraction < 1:
        raise ValueError(
            f"validation_fraction must be in (0, 1), got {settings.validation_fraction}."
        )
    if not (_is_number(settings.alpha) and settings.alpha >= 0):
        raise ValueError(f"alpha must be a number >= 0, got {settings.alpha!r}.")
    if not _is_count(settings.max_iter):
        raise ValueError(f"max_iter must be an integer >= 1, got {settings.max_iter!r}.")
    widths: Any = settings.hidden
    if isinstance(widths, str) or not np.iterable(widths) or not all(map(_is_count, widths)):
        raise ValueError(
            f"hidden must be a sequence of widths, such as (32,), or () for a linear model; "
            f"got {widths!r}."
        )


def trained(
    settings: Any, data: Data, loss: BalancedLoss, seed: int, start: nn.Module | None = None
) -> tuple[nn.Module, int]:
    """Train a network (N, F) -> (N, W), from the weights of `start` if given; return it and the
    number of steps.
    """
    inputs, labels, weight = data
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = [inputs.shape[1], *settings.hidden, loss.likelihood.width(labels.shape[1])]
        layers = [nn.Linear(*pair).double() for pair in pairwise(sizes)]
        modules = [module for layer in layers for module in (layer, nn.Tanh())]
        network = nn.Sequential(*modules[:-1])
        if start is not None:
            network.load_state_dict(start.state_dict())
        parameters = [*network.parameters(), *(p for p in loss.parameters() if p.requires_grad)]
        optimizer = torch.optim.LBFGS(
            parameters,
            max_iter=settings.max_iter,
            history_size=10,
            line_search_fn="strong_wolfe",
        )

        def step() -> Tensor:
            optimizer.zero_grad()
            size = torch.stack([layer.weight.square().sum() for layer in layers]).sum()
            value = loss(network(inputs), labels, weight) + settings.alpha * size
            value.backward()
            return value

        optimizer.step(step)
    if not all(p.isfinite().all() for p in parameters):
        raise FloatingPointError("The training diverged; use a larger sigma or a larger alpha.")
    return network, optimizer.state[parameters[0]]["n_iter"]


def ends(data: Data) -> Tensor:
    """(2, D): the smallest and the largest label."""
    return torch.stack(torch.aminmax(data[1], dim=0))


def point(raw: Tensor, loss: BalancedLoss, ends: Tensor) -> Tensor:
    """(N, W) -> (N, D) point predictions; balanced ones are clipped to the ends (2, D)."""
    pred = loss.likelihood.decode(raw)
    return pred if isinstance(loss.prior, Flat) else pred.clamp(*ends)


def errors(network: nn.Module, loss: BalancedLoss, data: Data, ends: Tensor) -> Tensor:
    """(N, D): prediction minus label."""
    with torch.no_grad():
        return point(network(data[0]), loss, ends) - data[1]


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
    rows, total = rows[total > 0], total[total > 0]
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
    """(N,) mask of held-out samples: along the sorted labels, one at random out of each few."""
    generator = torch.Generator().manual_seed(seed)
    order = labels[:, 0].argsort(stable=True)
    block = max(2, round(1 / fraction))
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for rows in order.split(block):
        if len(rows) == block:
            held_out[rows[torch.randint(block, (), generator=generator)]] = True
    return held_out


def over_ranges(error: Tensor, labels: Tensor, weight: Tensor) -> float:
    """Return the mean absolute error, averaged over equally wide ranges of the label."""
    means = []
    for e, y in zip(error.T.abs(), labels.T.contiguous(), strict=True):
        place = torch.bucketize(y, edges(y, RANGES)[1:-1])
        sums, counts = (
            torch.zeros(RANGES, dtype=e.dtype).index_add(0, place, w) for w in (e * weight, weight)
        )
        means.append((sums[counts > 0] / counts[counts > 0]).mean())
    return float(torch.stack(means).mean())


def edges(labels: Tensor, bins: int) -> Tensor:
    return torch.linspace(float(labels.min()), float(labels.max()), bins + 1, dtype=torch.float64)


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return bool(number and np.isfinite(value))


def _is_count(value: Any) -> bool:
    count = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return bool(count and value >= 1)
