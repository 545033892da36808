"""Each pair against Theorem 1 written with other formulas; baselines against loops."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor
from torch.nn.functional import one_hot

from losses import (
    BalancedLoss,
    Batch,
    Bins,
    Categorical,
    Classes,
    Gaussian,
    GaussianMixture,
    Heteroscedastic,
    Histogram,
    Huber,
    WeightedLoss,
)
from tests.losses.pairs import (
    CLASSES,
    D64,
    EDGES,
    PAIRS,
    assert_close,
    batch,
    evaluate,
    learns,
    make,
)
from tests.losses.search import log_evidence, log_p

CLOSE = {"rel": 1e-9, "abs": 1e-9}  # float64 on both sides


def logit_rows(likelihood, prior, logits: Tensor, target: Tensor) -> Tensor:
    """Theorem 1 for classes and bins: an atom counts for its bin, and with soft targets empty bins
    are as frequent as the rarest one."""
    share, soft = logits.log_softmax(-1), getattr(likelihood, "soft", 0.0)
    if isinstance(likelihood, Categorical):
        hit = one_hot(target[:, 0].long(), CLASSES).double()
    else:
        hit = one_hot(torch.bucketize(target[:, 0], EDGES[1:-1], right=True), 8).double()
    mass = hit.sum(0) if isinstance(prior, Batch) else getattr(prior, "weights", torch.ones(()))
    mass = mass.where(mass > 0, mass[mass > 0].min()) if soft else mass
    constant = (hit @ mass).log() if isinstance(prior, Classes) else 0.0
    if soft:
        hit = torch.from_numpy(stats.norm.cdf(EDGES, target, soft)).diff()
        hit = hit / hit.sum(-1, keepdim=True)
    return (share + mass.log()).logsumexp(-1) - (hit * share).sum(-1) - constant


def rows(loss: BalancedLoss, pred: Tensor, target: Tensor) -> Tensor:
    """Theorem 1 of each sample."""
    likelihood, prior = loss.likelihood, loss.prior
    if isinstance(likelihood, Categorical | Histogram):
        return logit_rows(likelihood, prior, pred, target)
    if isinstance(likelihood, Heteroscedastic):
        likelihood, (pred, r) = likelihood.shape, pred.chunk(2, -1)
        scale = likelihood.raw * 4.0 ** r.tanh()
    else:
        scale = likelihood.raw
    atoms = target, torch.zeros(len(target), dtype=D64)
    if isinstance(prior, Bins):
        atoms = prior.centers[:, None], prior.weights.log()
    evidence = log_evidence(likelihood, prior, pred, scale, target, atoms)
    return evidence - log_p(likelihood, target, pred, scale)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair != "Laplace Mixture 1"])
def test_pairs(pair, weighted):
    """Value and gradients to predictions and scale; test_laws.py integrates Laplace x Mixture."""
    loss, (pred, target) = make(pair, learn=learns(pair)), batch(pair, 6)
    weight = torch.linspace(0.1, 2, 6, dtype=D64) if weighted else None
    scale = np.linspace(0.6, 1.1, 3) if "*" in pair else np.array([0.8])
    name = pair.split()[0].rstrip("*").removeprefix("Own")
    units = {"Gaussian": 2 * (scale**2).mean(), "Laplace": scale.mean(), "Huber": (scale**2).mean()}

    def exact(pred: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        share = torch.ones(6, dtype=D64) if weight is None else weight
        return units.get(name, 1.0) * (share @ rows(loss, pred, target)) / share.sum()

    given = pred, target, weight
    assert_close(evaluate(loss, *given), evaluate(loss, *given, call=exact), 1e-9)


ERRORS = {
    "mse": lambda r: r**2,
    "l1": abs,
    "huber": lambda r: r**2 / 2 if abs(r) < 1.5 else 1.5 * (abs(r) - 0.75),
    "focal_mse": lambda r: r**2 * math.tanh(0.3 * abs(r) / 2) ** 2,
    "focal_l1": lambda r: abs(r) * math.tanh(0.3 * abs(r) / 2) ** 2,
}


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("error", ERRORS)
def test_weighted_baselines(error, normalise):
    """2 sigmoid(x) - 1 is tanh(x / 2)."""
    loss = WeightedLoss(error, normalise, delta=1.5, beta=0.3, gamma=2)
    pred, target = batch("Gaussian Flat 3", 8)
    weight = torch.linspace(0.2, 3, 8, dtype=D64)
    rows = [sum(ERRORS[error](r) for r in row) for row in (pred - target).tolist()]
    total = sum(w * row for w, row in zip(weight.tolist(), rows, strict=True))
    expected = total / (weight.sum().item() if normalise else 8)
    assert loss(pred, target, weight).item() == pytest.approx(expected, **CLOSE)
    assert loss(pred, target).item() == pytest.approx(sum(rows) / 8, **CLOSE)


@pytest.mark.parametrize("delta", [0.2, 1.0, 4.0])
def test_huber_normaliser(delta):
    grid = np.linspace(-300, 300, 1_000_001)
    area = np.trapezoid(np.exp(-special.huber(delta, grid)), grid)
    # 1e-7: the trapezoid's step is 6e-4; a tail beyond 300 holds e^-60 at delta 0.2
    assert Huber(1.0, delta).log_z == pytest.approx(math.log(area), abs=1e-7)


def test_integer_weights_make_a_float32_mixture_that_serves_float64():
    prior = GaussianMixture([1, 3], [[0], [2]], [[[4]], [[1]]])
    assert prior.weights.dtype == torch.float32
    pred = torch.tensor([[0.3]], dtype=D64)
    parts = [0.25 * stats.norm.pdf(0.3, 0, 5**0.5), 0.75 * stats.norm.pdf(0.3, 2, 2**0.5)]
    expected = 2 * (-stats.norm.logpdf(1.0) + math.log(sum(parts)))
    value = BalancedLoss(Gaussian(1.0), prior)(pred, pred + 1)
    assert value.dtype == D64
    assert value.item() == pytest.approx(expected, rel=1e-6)  # the eigenvalues are float32
