"""float32 far from the prior's mass, autocast, and predictions that are all the same."""

import pytest
import torch

from losses import BMC, BNI, GAI, BalancedLoss, Batch, Bins, Gaussian, GaussianMixture, Laplace
from losses.fast import FEW
from tests.losses.pairs import D64, PAIRS, batch, learns, make, mixture

REAL = [pair for pair in PAIRS if learns(pair)]


@pytest.mark.parametrize("sigmas", [50, 1e4])
@pytest.mark.parametrize("pair", REAL)
def test_far_from_the_mass(pair, sigmas):
    """Finite and, at 50 sigma, still equal to float64."""
    results = []
    for dtype in (torch.float32, D64):
        loss = make(pair, dtype, learn=True)
        pred, target = batch(pair, 6, dtype)
        pred = (pred + 0.8 * sigmas * torch.tensor([1, -1, 1, -1, 1, -1])[:, None]).to(dtype)
        pred.requires_grad_()
        value = loss(pred, target)
        value.backward()
        scale = loss.likelihood.get_parameter(loss.likelihood.symbol).grad
        results.append([value.detach(), pred.grad, scale])
    for single, double in zip(*results, strict=True):
        assert torch.isfinite(single).all()
        if sigmas == 50:
            # values are differences of energies r^2 / 2 = 1250, which float32 rounds to 1e-4;
            # ten times that. At 1e4 sigma their rounding is as large as the gradient: finite only
            torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", ["bins", "mixture", "laplace bins", "laplace mixture"])
def test_far_predictions_among_many_rows(name, learn):
    """The grid's path: some rows of a depth map are 1e4 sigma away."""
    prior = mixture(1, torch.float32) if "mixture" in name else Bins(range(10), range(1, 11))
    maker = Laplace if "laplace" in name else Gaussian
    loss = BalancedLoss(maker(0.5, learn), prior)
    pred = torch.linspace(-5, 15, FEW + 500)[:, None]
    pred[::1000] = 5000.0
    pred.requires_grad_()
    value = loss(pred, torch.zeros_like(pred))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(pred.grad).all()
    if learn:
        assert all(torch.isfinite(p.grad).all() for p in loss.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("pair", PAIRS)
def test_autocast_computes_in_float32(pair, dtype):
    """What comes in low precision is taken as it is, and worked on in float32."""
    loss = make(pair, torch.float32)
    pred, target = batch(pair, 6, torch.float32)
    low = pred.to(dtype)
    expected = loss(low.float(), target)
    leaf = low.clone().requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = loss(leaf, target)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected, rtol=0, atol=0)  # the same computation
    value.backward()
    assert leaf.grad.dtype == dtype
    assert torch.isfinite(leaf.grad).all()


def test_autocast_does_not_round_the_matrix_product():
    """BMC and GAI in several dimensions go through a matrix product, which autocast would round."""
    pred, target = (
        100 + torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    ).unbind()
    prior = GaussianMixture(torch.ones(8), target, torch.eye(16).expand(8, 16, 16))
    for loss in (BMC(1.0), GAI(prior, 1.0)):
        exact = loss(pred.double(), target.double())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(pred, target)
        # float32 gives 1e-4 of |p - y|^2 ~ 32 with offsets of 100; bfloat16 would be off by units
        torch.testing.assert_close(value.double(), exact, rtol=1e-3, atol=1e-3)


def test_offsets_do_not_cost_precision():
    """Labels such as years, 2000 +- 3, in float32."""
    g = torch.Generator().manual_seed(0)
    pred, target = 2000 + 3 * torch.randn(2, 64, 1, generator=g)
    bins = Bins(torch.arange(1980, 2020), torch.ones(40))
    for loss in (BMC(1.0), BNI(bins, 1.0)):
        x = pred.clone().requires_grad_()
        loss(x, target).backward()
        y = pred.double().requires_grad_()
        loss(y, target.double()).backward()
        # 1e-5 of a gradient of 2 * 3 / 64: residuals are exact, as their terms are float32 numbers
        torch.testing.assert_close(x.grad.double(), y.grad, rtol=1e-4, atol=1e-6)


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
    """Neither of samples near the other centers nor of those near it."""
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
@pytest.mark.parametrize("name", ["batch", "mixture"])
@pytest.mark.parametrize("spread", [500, 2000])
def test_clustered_labels_in_many_dimensions(spread, name, learn):
    """34 dimensions, sigma 1, clusters far from each other: float32 against float64."""
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
