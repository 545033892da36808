"""Chunks, gradients by formula, and which calls take a fast path."""

import copy
from functools import partial

import pytest
import torch
from torch import Tensor

from losses import (
    BMC,
    BalancedLoss,
    Batch,
    Bins,
    Gaussian,
    GaussianMixture,
    Laplace,
    fast,
)
from losses.balanced import SMALL
from losses.fast import table
from tests.losses import search
from tests.losses.pairs import (
    D64,
    EDGES,
    assert_close,
    batch,
    definition,
    evaluate,
    evaluate_exactly,
    generator,
    make,
    mixture,
)


@pytest.mark.parametrize("full_nll", [False, True])
@pytest.mark.parametrize(
    "pair", ["Laplace Bins 1", "Laplace Mixture 1", "Huber Batch 3", "Gaussian Batch 3"]
)
def test_chunks_equal_the_definition(pair, full_nll, small_limits, monkeypatch):
    monkeypatch.setattr(table, "NUMBERS", 500)
    loss = make(pair, learn=True, full_nll=full_nll)
    pred, target = batch(pair, 200)
    weight = torch.linspace(0, 1, 200, dtype=D64)
    value, *slopes = evaluate(loss, pred, target, weight)
    exact_value, *exact_slopes = evaluate_exactly(loss, pred, target, weight)
    assert_close(value, exact_value, 1e-12)  # the same steps in chunks
    assert_close(slopes, exact_slopes, 1e-11)


class Halved(Batch):
    def log_evidence(self, *given) -> Tensor:
        return super().log_evidence(*given) / 2


class Blunt(Gaussian):
    def log_prob(self, target, pred) -> Tensor:
        return super().log_prob(target, pred) / 3


class Doubled(BalancedLoss):
    def rows(self, *given) -> Tensor:
        return 2 * super().rows(*given)


BINS = Bins([0.0, 1], [1.0, 2])
OWN = [(BalancedLoss, Gaussian, Halved()), (BalancedLoss, Laplace, Halved())]
OWN += [(BalancedLoss, Blunt, BINS), (Doubled, Gaussian, BINS)]


@pytest.mark.parametrize("loss", [kind(noise(0.8), prior) for kind, noise, prior in OWN])
def test_a_subclass_uses_the_definition(loss, small_limits):
    pred, target = torch.randn(2, 2 * SMALL // small_limits, 1, dtype=D64)
    assert torch.equal(loss(pred, target), definition(loss, pred, target))


@pytest.mark.parametrize("offset", [0.0, 1e6 + 0.3])
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("strength", [1.0, 0.6])
@pytest.mark.parametrize("name", ["BNI 1", "GAI 1", "BMC 1", "BMC 3"])
def test_gradients_by_formula(name, strength, learn, offset):
    """The many runs of the synthetic benchmark; far from zero in float32, too."""
    dims, dtype = int(name[-1]), torch.float32 if offset else D64
    sigma, one = torch.tensor(0.7, dtype=dtype), mixture(1, D64)
    given = {
        "BNI": lambda: Bins(EDGES + offset, EDGES.abs() + 1),
        "GAI": lambda: GaussianMixture(one.weights, one.means + offset, one.covariances),
        "BMC": Batch,
    }
    loss = BalancedLoss(Gaussian(sigma, learn), given[name[:3]](), strength)
    assert fast.has_gradients(loss)
    pred, target = offset + torch.randn(2, 4, 30, dims, dtype=D64, generator=generator())
    pred, target, exact = pred.to(dtype), target.to(dtype), copy.deepcopy(loss).double()
    for near in {False, "GAI" not in name}:
        found, scales = torch.vmap(partial(fast.gradients, loss, near=near))(pred, target)
        for run in range(4):
            _, slope, *to_sigma = evaluate_exactly(exact, pred[run].double(), target[run].double())
            # 1e-9: float64, with the cancellation of |p|^2 + |y|^2 - 2 p.y
            assert_close(found[run].double(), slope, 1e-5 if offset else 1e-9)
            ours = [scale[run].double() for scale in scales.values()]
            assert_close(ours, to_sigma, 1e-4 if offset else 1e-9)


@pytest.mark.parametrize("dims", [1, 3])
def test_gradients_of_labels_that_are_near(dims: int):
    """In float32, at the limit of near, against the definition in float64."""
    g, sigma = torch.Generator().manual_seed(dims), 0.5
    target = torch.randn(2, 200, dims, generator=g)
    reach = (target - target.mean(1, keepdim=True)).square().sum(-1).amax(1)
    target = target * (0.999 * sigma * (32 * dims / reach).sqrt())[:, None, None]
    assert fast.are_near(target, torch.full((2,), sigma))
    assert not fast.are_near(1.01 * target, torch.full((2,), sigma))
    pred = target + 0.7 * torch.randn(target.shape, generator=g)
    loss, exact = (BMC(torch.tensor(sigma, dtype=d), True) for d in (torch.float32, D64))
    ours, scales = torch.vmap(lambda p, y: fast.gradients(loss, p, y, near=True))(pred, target)
    for run in range(2):
        _, slope, to_sigma = evaluate_exactly(exact, pred[run].to(D64), target[run].to(D64))
        largest = slope.abs().max().item()  # 32 times float32's rounding, and some
        torch.testing.assert_close(ours[run].to(D64), slope, rtol=0, atol=1e-5 * largest)
        found = scales["likelihood.sigma"][run].to(D64)
        torch.testing.assert_close(found, to_sigma, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_search(seed: int):
    """A short run of `python -m tests.losses.search`."""
    found = list(search.search(settings=30, seed=seed))
    assert sum(name.endswith("table") for name, _ in found) >= 5
    assert all(max(off.values()) <= search.TOLERANCE for _, off in found), found
