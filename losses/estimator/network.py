"""The estimator's network: trained by L-BFGS on all rows at once, and the quantiles of what it puts
out.

N: rows; F: inputs; D: label dimensions; W: the likelihood's width.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from ..balanced import BalancedLoss
from ..categorical import Histogram
from ..likelihoods import Location

Data = Sequence[Tensor]  # standardised inputs (N, F), standardised labels (N, D), weights (N,)


def trained(
    data: Data,
    loss: BalancedLoss,
    seed: int,
    hidden: Sequence[int],
    alpha: float,
    max_iter: int,
    start: nn.Module | None = None,
) -> tuple[nn.Module, int]:
    """A network (N, F) -> (N, W) of these `hidden` widths, trained with the loss and the penalty
    alpha * |weights|^2, from the weights of `start` if given; and the steps that were taken.
    """
    inputs, labels, weight = data
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = [inputs.shape[1], *hidden, loss.likelihood.width(labels.shape[1])]
        layers = [nn.Linear(*pair).double() for pair in pairwise(sizes)]
        modules = [module for layer in layers for module in (layer, nn.Tanh())]
        network = nn.Sequential(*modules[:-1])
        if start is not None:
            network.load_state_dict(start.state_dict())
        parameters = [*network.parameters(), *(p for p in loss.parameters() if p.requires_grad)]
        optimizer = torch.optim.LBFGS(
            parameters,
            max_iter=max_iter,
            history_size=10,
            line_search_fn="strong_wolfe",
        )

        def step() -> Tensor:
            optimizer.zero_grad()
            size = torch.stack([layer.weight.square().sum() for layer in layers]).sum()
            value = loss(network(inputs), labels, weight) + alpha * size
            value.backward()
            return value

        optimizer.step(step)
    if not all(p.isfinite().all() for p in parameters):
        raise FloatingPointError(
            "the training left the finite numbers; give a larger sigma or a larger alpha"
        )
    return network, optimizer.state[parameters[0]]["n_iter"]


def quantile(likelihood: Location, coverage: float) -> float:
    """How many scales to either side of the prediction hold the given share of the mass."""
    r = torch.linspace(0, 60, 60_001, dtype=torch.float64)
    mass = torch.cumulative_trapezoid(torch.exp(-likelihood.energy(r)), r)
    return float(np.interp(coverage, (mass / mass[-1]).numpy(), r[1:].numpy()))


def histogram_quantile(likelihood: Histogram, logits: Tensor, share: float) -> Tensor:
    """(N, K) -> (N, 1): where the histogram has the given share of its mass below."""
    edges, mass = likelihood.edges.to(logits.dtype), logits.softmax(-1)
    above = mass.cumsum(-1)
    k = (above < share).sum(-1, keepdim=True).clamp(max=likelihood.bins - 1)
    inside = mass.gather(-1, k)
    part = ((share - (above.gather(-1, k) - inside)) / inside).clamp(0, 1)
    return edges[k] + part * (edges[k + 1] - edges[k])
