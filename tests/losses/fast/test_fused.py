"""The fast paths against the plain steps of Theorem 1 (`BalancedLoss.rows`), under autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from losses import (
    BMC,
    BNI,
    GAI,
    BalancedLoss,
    Batch,
    Bins,
    Gaussian,
    GaussianMixture,
    Laplace,
    fast,
)
from losses.fast.fused import FEW_ROWS
from tests.losses.pairs import D64, EDGES, PAIRS, batch, make, mixture

FUSED = ["GAI 1", "GAI 4", "BMC 1", "BMC 4", "BNI 1"]


def build(case: str, sigma: Tensor, learn: bool, strength: float, **options):
    name, dims = case.split()
    options["strength"] = strength
    makers = {
        "GAI": lambda: GAI(mixture(int(dims), D64), sigma, learn, **options),
        "BMC": lambda: BMC(sigma, learn, **options),
        "BNI": lambda: BNI(Bins(EDGES, EDGES.abs() + 0.1), sigma, learn, **options),
    }
    return makers[name]()


def definition(loss: BalancedLoss, pred, target, weight=None) -> Tensor:
    return loss.mean(loss.rows(pred, target, weight), weight)


def compare(loss, pred, target, weight=None):
    pred = pred.clone().requires_grad_()
    inputs = [pred, *loss.parameters()]
    assert fast.mean_loss(loss, pred, target, weight) is not None
    fused = loss(pred, target, weight)
    plain = definition(loss, pred, target, weight)
    # 1e-9: float64, with the cancellation of |p|^2 + |y|^2 - 2 p.y in several dimensions
    torch.testing.assert_close(fused, plain, rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(
        torch.autograd.grad(fused, inputs), torch.autograd.grad(plain, inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strength", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("per_dimension", [False, True])
@pytest.mark.parametrize("case", FUSED)
def test_equals_plain_steps(case, per_dimension, learn, strength, weighted):
    dims = int(case.split()[1])
    if case == "GAI 4" and per_dimension:
        return  # has plain steps only
    g = torch.Generator().manual_seed(1)
    pred, target = 2 * torch.randn(2, 30, dims, generator=g, dtype=D64)
    sigma = torch.tensor(0.7, dtype=D64)
    sigma = torch.linspace(0.5, 1.4, dims, dtype=D64) if per_dimension else sigma
    weight = torch.rand(30, generator=g, dtype=D64) if weighted else None
    compare(build(case, sigma, learn, strength), pred, target, weight)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(FUSED),
    st.integers(2, 9),
    st.floats(0.05, 30),
    st.floats(0, 1.5),
    st.integers(0, 2**20),
)
def test_any_shape_and_value(case, rows, sigma, strength, seed):
    dims = int(case.split()[1])
    g = torch.Generator().manual_seed(seed)
    pred, target = 5 * torch.randn(2, rows, dims, generator=g, dtype=D64)
    compare(build(case, torch.tensor(sigma, dtype=D64), True, strength), pred, target)


@pytest.mark.parametrize("strength", [1.0, 0.6])
@pytest.mark.parametrize("case", FUSED)
def test_full_nll(case, strength):
    dims = int(case.split()[1])
    pred, target = 2 * torch.randn(2, 9, dims, dtype=D64)
    weight = torch.linspace(0, 1, 9, dtype=D64)
    loss = build(case, torch.tensor(0.7, dtype=D64), True, strength, full_nll=True)
    compare(loss, pred, target)
    compare(loss, pred, target, weight)


def test_a_float32_sigma_serves_float64_predictions():
    loss = BMC(0.7, learn_sigma=True)
    pred, target = torch.randn(2, 20, 1, dtype=D64)
    loss(pred.requires_grad_(), target).backward()
    assert pred.grad.dtype == D64
    assert loss.likelihood.sigma.grad.dtype == torch.float32


class Halved(Batch):
    """A prior that says something else than its parent."""

    def log_evidence(self, *given) -> Tensor:
        return super().log_evidence(*given) / 2


class Blunt(Gaussian):
    def log_prob(self, target, pred) -> Tensor:
        return super().log_prob(target, pred) / 3


class Doubled(BalancedLoss):
    def rows(self, *given) -> Tensor:
        return 2 * super().rows(*given)


@pytest.mark.parametrize("rows", [6, FEW_ROWS + 5])
@pytest.mark.parametrize(
    "loss",
    [
        BalancedLoss(Gaussian(0.8), Halved()),
        BalancedLoss(Blunt(0.8), Bins([0.0, 1], [1.0, 2])),
        Doubled(Gaussian(0.8), Bins([0.0, 1], [1.0, 2])),
        BalancedLoss(Laplace(0.8), Halved()),
    ],
)
def test_a_subclass_gets_the_definition(loss, rows):
    rows = 50 if isinstance(loss.prior, Batch) and rows > 6 else rows
    pred, target = torch.randn(2, rows, 1, dtype=D64)
    assert torch.equal(loss(pred, target), definition(loss, pred, target))


@pytest.mark.parametrize("rows", [5, FEW_ROWS + 100])
@pytest.mark.parametrize("pair", PAIRS)
def test_inference_mode(pair, rows, request):
    """The same value, whether the loss is made in there or not; and it trains afterwards."""
    if rows > 5 and "Batch" in pair:
        rows //= request.getfixturevalue("small_limits")
    learn = pair.split()[0].rstrip("*") in ("Gaussian", "Laplace", "Huber")
    pred, target = batch(pair, rows)
    outside = make(pair, learn=learn)
    with torch.inference_mode():
        made = make(pair, learn=learn)
        values = outside(pred, target), made(pred, target)
    pred.requires_grad_()
    expected = outside(pred, target)
    for value in values:
        torch.testing.assert_close(value.clone(), expected.detach(), rtol=1e-12, atol=1e-12)
    made(pred, target).backward()
    assert pred.grad is not None


def test_low_precision_weights_are_summed_in_the_loss_precision():
    """65,504 is the largest float16: the sum of more ones is none of its numbers."""
    g = torch.Generator().manual_seed(0)
    pred, target = torch.randn(2, 70_000, 1, generator=g)
    loss = BNI(Bins([-1.0, 0, 1], [1.0, 2, 1]), 1.0)
    for dtype in (torch.float16, torch.bfloat16, torch.int64):
        weight = torch.ones(70_000, dtype=dtype)
        torch.testing.assert_close(loss(pred, target, weight), loss(pred, target))


@pytest.mark.parametrize("far", [1e4, 1e6])
@pytest.mark.parametrize("learn", [False, True])
def test_a_center_far_away_costs_no_digits(far, learn):
    """Neither of the rows near the other centers nor of those near it."""
    centers = torch.tensor([0.0, 1, 2, 3, far])
    pred = torch.tensor([0.3, 1.4, 2.2, far + 0.5, far - 0.25])[:, None]
    target = torch.tensor([0.0, 1, 3, far, far])[:, None]
    results = []
    for dtype in (torch.float32, D64):
        loss = BNI(Bins(centers, torch.ones(5)), 1.0, learn).to(dtype)
        x = pred.to(dtype).requires_grad_()
        value = loss(x, target.to(dtype))
        results.append([value, *torch.autograd.grad(value, [x, *loss.parameters()])])
    for single, double in zip(*results, strict=True):
        # 1e-5: float32 rounding of a few terms of order one
        torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", ["batch", "batch, plain", "mixture"])
@pytest.mark.parametrize("spread", [500, 2000])
def test_clustered_labels_in_many_dimensions(spread, name, learn, monkeypatch):
    """34 dimensions, sigma 1, clusters far from each other: float32 against float64."""
    if name.endswith("plain"):
        monkeypatch.setattr("losses.fast.mean_loss", lambda *_: None)
    g = torch.Generator().manual_seed(0)
    centers = spread * torch.rand(8, 34, generator=g)
    target = centers[torch.arange(64) % 8] + 0.3 * torch.randn(64, 34, generator=g)
    pred = target + 0.3 * torch.randn(64, 34, generator=g)
    results = []
    for dtype in (torch.float32, D64):
        prior = Batch()
        if name == "mixture":
            prior = GaussianMixture(torch.ones(8), centers, 0.1 * torch.eye(34).expand(8, 34, 34))
        loss = BalancedLoss(Gaussian(1.0, learn), prior).to(dtype)
        x = pred.to(dtype).requires_grad_()
        value = loss(x, target.to(dtype))
        results.append(torch.autograd.grad(value, [x, *loss.parameters()]))
    for single, double in zip(*results, strict=True):
        # 1e-5 of the largest: float32; sigma's gradient is a difference of two sums ten times it
        assert (single - double).abs().max() <= 1e-5 * double.abs().max()


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("dims", [1, 3])
def test_gradients_of_labels_that_are_near(dims: int, learn: bool):
    """In float32, at the very edge of near, against the definition in float64."""
    generator, sigma = torch.Generator().manual_seed(dims), 0.5
    target = torch.randn(2, 200, dims, generator=generator)
    reach = (target - target.mean(1, keepdim=True)).square().sum(-1).amax(1)
    target = target * (0.999 * sigma * (32 * dims / reach).sqrt())[:, None, None]
    assert fast.are_near(target, torch.full((2,), sigma))
    assert not fast.are_near(1.01 * target, torch.full((2,), sigma))
    pred = target + 0.7 * torch.randn(target.shape, generator=generator)
    loss, exact = (BMC(torch.tensor(sigma, dtype=d), learn) for d in (torch.float32, D64))
    ours, scales = torch.vmap(lambda p, y: fast.gradients(loss, p, y, near=True))(pred, target)
    for run in range(2):
        p = pred[run].to(D64).requires_grad_()
        exact.zero_grad()
        definition(exact, p, target[run].to(D64)).backward()
        assert p.grad is not None
        largest = p.grad.abs().max().item()  # 32 times float32's rounding, and some
        torch.testing.assert_close(ours[run].to(D64), p.grad, rtol=0, atol=1e-5 * largest)
        if learn:
            to_sigma = exact.likelihood.raw.grad
            torch.testing.assert_close(
                scales["likelihood.sigma"][run].to(D64), to_sigma, rtol=1e-4, atol=1e-5
            )
