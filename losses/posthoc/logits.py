"""Histograms and classes: p_train(y | x) / p_train(y)^power, renormalised and decoded.

N: samples; K: classes or bins.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..categorical import Categorical, Classes, Histogram
from ..priors import Flat, Prior
from .fitting import Criterion, score
from .labels import as_prior

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # tried by power=None


def frequencies(likelihood: Histogram | Categorical, prior: Prior) -> Tensor:
    """(K,) log p_train; a bin without labels counts as the rarest, because nothing is divided
    by zero.
    """
    if isinstance(prior, Flat):
        return torch.zeros(likelihood.width(1))
    mass: Any = prior.weights
    if isinstance(likelihood, Histogram):
        centers: Any = prior.centers
        place = likelihood.index(centers[:, None].to(likelihood.edges))
        mass = mass.new_zeros(likelihood.bins).index_add(0, place, mass)
    return mass.clamp(min=mass[mass > 0].min()).log()


def prior_of(likelihood: Histogram | Categorical, given: Any) -> Prior:
    """Return the prior from itself, or from training labels (L,)."""
    if isinstance(likelihood, Categorical) and not isinstance(given, Prior):
        return Classes.fit(given, likelihood.classes)
    prior = given if isinstance(given, Classes) else as_prior(given)
    if not hasattr(prior, "weights") or hasattr(prior, "means"):
        raise TypeError(
            f"A {type(likelihood).__name__} is divided by frequencies; give Bins, Classes or the "
            f"training labels instead of {type(given).__name__}."
        )
    return prior


def decoded(likelihood: Histogram | Categorical, log_p: Tensor, dial: float, x: Tensor) -> Tensor:
    """(N, K) logits -> (N,)."""
    if x.ndim != 2 or x.shape[-1] != len(log_p):
        raise ValueError(f"Expected logits (N, {len(log_p)}), got {tuple(x.shape)}.")
    return likelihood.decode(x - dial * log_p.to(x))[:, 0]


def choose_power(
    likelihood: Histogram | Categorical,
    log_p: Tensor,
    criterion: Criterion,
    logits: NDArray,
    target: NDArray,
) -> float:
    """Return the power with the smallest balanced error on held-out logits (N, K)."""
    x, ones = torch.from_numpy(logits), np.ones(target.size)
    losses = [
        score(criterion, decoded(likelihood, log_p, power, x).numpy(), target.ravel(), ones)
        for power in POWERS
    ]
    return POWERS[int(np.argmin(losses))]
