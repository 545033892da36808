"""Tables for very many samples, against Theorem 1 in float64."""

import math
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from losses import BMC, BalancedLoss, Bins, Gaussian, GaussianMixture, Laplace
from losses.balanced import SMALL
from losses.fast import table
from tests.losses.pairs import (
    D64,
    EDGES,
    definition,
    evaluate,
    evaluate_exactly,
    mixture,
)
from tests.losses.search import compare

MANY = 16 * SMALL
PROMISE = 1e-5  # of the largest gradient, of the value (or one) and of sigma's gradient


def gaussians(means, deviations):
    means, deviations = (torch.tensor(t, dtype=D64) for t in (means, deviations))
    return GaussianMixture(torch.ones_like(means), means[:, None], deviations[:, None, None] ** 2)


def bins(low, high, count):
    centers = torch.linspace(low, high, count, dtype=D64)
    return Bins(centers, torch.arange(1, count + 1, dtype=D64))


# name: prior, sigma, range of the predictions; test_random_search has many others
CASES = {
    "16 components": (gaussians(np.linspace(0, 10, 16), np.linspace(0.2, 1.5, 16)), 1.0, (0.5, 10)),
    "wide": (gaussians([0.0, 5, 40], [30.0, 50, 80]), 2.0, (-100, 100)),
    "a spike": (gaussians([40.0, 0], [15.0, 0.001]), 0.02, (0, 100)),
    "100 bins": (bins(0.05, 9.95, 100), 1.0, (0.5, 10)),
    "narrow bins": (bins(0, 3, 16), 0.2, (-0.2, 3.2)),
    "few bins far apart": (bins(0, 100, 4), 1.0, (-20, 120)),
    "predictions far outside": (bins(0, 10, 12), 1.0, (-1000, 1000)),
    "too many peaks": (bins(0, 1000, 300), 0.1, (0, 1000)),
    "bins at 1e6": (bins(1e6 + 0.7, 1e6 + 15, 12), 1.5, (1e6 - 2, 1e6 + 18)),
    "mixture at 1e6": (gaussians([1e6 + 0.7, 1e6 + 9.1], [0.6, 2.0]), 1.5, (1e6 - 2, 1e6 + 18)),
}


def spread(low: float, high: float, count: int = MANY, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    pred = low + (high - low) * torch.rand(count, 1, generator=g, dtype=D64)
    pred[0], pred[-1] = low, high
    return pred


def check(loss: BalancedLoss, pred: Tensor, target: Tensor) -> None:
    off = compare(loss, (pred, target, None))
    assert max(off.values()) <= PROMISE, off


def table_of(case: str, most: int = 1 << 20) -> table.Table | None:
    prior, sigma, _ = CASES[case]
    atoms = isinstance(prior, Bins)
    c = prior.centers if atoms else prior.means[:, 0]
    v = torch.zeros_like(c) if atoms else prior.covariances[:, 0, 0]
    components = torch.stack([c, v, prior.weights.log()]).double().numpy().tobytes()
    return table.tabulate(components, sigma**2, False, most, D64)


@pytest.mark.parametrize("case", CASES)
def test_a_table_equals_the_exact_sum(case):
    prior, sigma, (low, high) = CASES[case]
    loss = BalancedLoss(Gaussian(torch.tensor(sigma, dtype=D64), learn_sigma=True), prior)
    pred = spread(low, high)
    check(loss, pred, pred + 0.3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("count", [100, MANY])
@pytest.mark.parametrize("likelihood", [Gaussian, Laplace])
@pytest.mark.parametrize("case", ["100 bins", "16 components"])
def test_predictions_that_are_not_finite(case, likelihood, count, bad):
    """The loss is not finite, as in the definition; other samples keep their gradients."""
    loss = BalancedLoss(likelihood(1.0), CASES[case][0])
    pred, target = spread(0, 10, count), torch.zeros(count, 1, dtype=D64)
    pred[7] = bad
    value = loss(pred.requires_grad_(), target)
    assert not definition(loss, pred, target).isfinite()
    assert not value.isfinite()
    value.backward()
    assert pred.grad[:7].isfinite().all()


def test_a_batch_prior_of_many_samples():
    """A wide sigma: a table of few cells is enough."""
    g = torch.Generator().manual_seed(0)
    pred, target = 40 + 12 * torch.randn(2, 4 * SMALL + 1, 1, generator=g, dtype=D64)
    with mock.patch.object(table._Read, "apply", wraps=table._Read.apply) as read:
        check(BMC(torch.tensor(30.0, dtype=D64), True), pred, target)
    assert read.called


@pytest.mark.parametrize("case", ["16 components", "wide", "100 bins", "narrow bins"])
def test_the_error_of_a_table_is_bounded(case):
    prior, sigma, _ = CASES[case]
    made = table_of(case)
    x = torch.linspace(made.low, made.high, 100_000, dtype=D64)[1:-1].requires_grad_()
    value, slope = made.read(x.detach())
    gaussian = Gaussian(torch.tensor(sigma, dtype=D64))
    exact = prior.log_evidence(gaussian, x[:, None], x[:, None]) + gaussian.log_norm(x[:, None])
    (exact_slope,) = torch.autograd.grad(exact.sum(), x)
    # as the docstring of the module proves, with rho = 24 cells
    assert ((value - exact).abs() <= 2e-7).all()
    assert ((slope - exact_slope).abs() <= 1.2e-5 / (24 / made.scale)).all()


def test_which_priors_have_a_table():
    """Between labels far apart the evidence has a kink, which no bound allows for."""
    assert table_of("few bins far apart") is None
    assert table_of("too many peaks", MANY // 8) is None
    for case in ("16 components", "100 bins"):  # those of depth maps are small
        assert table_of(case, most=1200) is not None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("learn", "strength", "full_nll"),
    [(False, 1.0, False), (True, 1.0, False), (True, 0.6, False), (True, 0.6, True)],
)
@pytest.mark.parametrize("case", ["16 components", "100 bins", "bins at 1e6", "mixture at 1e6"])
def test_depth_map_in_float32(case, learn, strength, full_nll, weighted):
    """As depth training calls it, against float64; labels at 1e6 are known better than float32."""
    prior, sigma, (low, high) = CASES[case]
    pred, target = (spread(low, high, 20_000, seed) for seed in (0, 1))
    weight = spread(0, 1, 20_000, 2)
    given = [pred.float(), target.float(), weight[:, 0].float() if weighted else None]
    options = {"strength": strength, "full_nll": full_nll}
    loss = BalancedLoss(Gaussian([sigma], learn), prior, **options)  # one per dimension
    single = evaluate(loss, *given)
    double = evaluate_exactly(loss.double(), *(x if x is None else x.double() for x in given))
    for ours, exact in zip(single, double, strict=True):
        # the promise, plus float32 rounding of a mean of 20,000 samples
        assert (ours - exact).abs().max() <= 2e-5 * exact.abs().max()


EDITS = {
    "fill": lambda loss: loss.likelihood.sigma.detach().fill_(2.0),
    "data": lambda loss: loss.prior.weights.data.copy_(loss.prior.weights.flip(0)),
    "NumPy view": lambda loss: loss.prior.weights.numpy()[:1].fill(0.9),
    "load": lambda loss: loss.load_state_dict({k: v * 1.3 for k, v in loss.state_dict().items()}),
    "dtype": lambda loss: loss.double(),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", ["bins", "mixture"])
def test_a_cached_table_follows_every_edit(name, learn, edit):
    prior = Bins(EDGES.float(), EDGES.float().abs() + 1)
    prior = prior if name == "bins" else mixture(1, torch.float32)
    loss = BalancedLoss(Gaussian(1.0, learn), prior)
    pred, target = (spread(-3, 3, MANY, seed).float() for seed in (0, 1))
    for _ in range(2):
        value, expected = loss(pred, target), definition(loss, pred.double(), target.double())
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-4)  # float32
        with torch.no_grad():
            EDITS[edit](loss)


class Count(TorchDispatchMode):
    """Count the numbers that torch's operations return."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.total += sum(x.numel() for x in tree_leaves(result) if torch.is_tensor(x))
        return result


def cost(loss: BalancedLoss, outlier: float | None = None) -> int:
    """Of the second step, when the table is cached."""
    pred, target = (spread(0.7, 10, 40_000, seed).float() for seed in (0, 1))
    pred[7] = pred[7] if outlier is None else outlier
    pred.requires_grad_()
    loss(pred, target).backward()
    with Count() as count:
        loss(pred, target).backward()
    return count.total


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("case", ["16 components", "100 bins"])
def test_cost_of_a_step(case, learn):
    """Not samples x components, and one outlier does not change that."""
    loss = BalancedLoss(Gaussian(1.0, learn), CASES[case][0]).float()
    components = len(loss.prior.weights)
    plain, far = cost(loss), cost(loss, outlier=1e5)
    assert plain < 60 * 40_000 + 3000 * 25 * components
    assert far <= 1.5 * plain
