"""Many rows in one dimension: the Hermite grid, its chunked fallback and Laplace's sorted sums,
against the exact sum over the components, in float64."""

import pytest
import torch

from losses import BalancedLoss, Bins, Gaussian, GaussianMixture, Huber, Laplace
from losses import grid as grid_module
from losses.grid import FEW_ROWS, interpolate
from tests.losses.pairs import D64

ROWS = 2 * FEW_ROWS + 17
PROMISE = 1e-5  # relative, of values, gradients and sigma's gradient


def gaussians(means, deviations, weights=None):
    means, deviations = (torch.tensor(t, dtype=D64) for t in (means, deviations))
    weights = torch.ones_like(means) if weights is None else torch.tensor(weights, dtype=D64)
    return GaussianMixture(weights, means[:, None], deviations[:, None, None] ** 2)


def bins(low, high, count, weights="ramp"):
    w = torch.arange(1, count + 1, dtype=D64) if weights == "ramp" else weights
    return Bins(torch.linspace(low, high, count, dtype=D64), w)


# name: prior, sigma, range of the predictions
CASES = {
    "16 components": (
        gaussians(torch.linspace(0, 10, 16).tolist(), torch.linspace(0.2, 1.5, 16).tolist()),
        1.0,
        (0.5, 10),
    ),
    "wide": (gaussians([0.0, 5, 40], [30.0, 50, 80]), 2.0, (-100, 100)),
    "narrow": (gaussians([0.0, 1, 2], [0.02, 0.05, 0.01]), 0.05, (-1, 3)),
    "far apart": (gaussians([-50.0, 0, 60], [1.0, 0.5, 2]), 1.0, (-80, 80)),
    "rare component": (gaussians([0.0, 8, 9], [1.0, 1, 1], [1.0, 1e-9, 1e-6]), 0.5, (-5, 15)),
    "100 bins": (bins(0.05, 9.95, 100), 1.0, (0.5, 10)),
    "narrow bins": (bins(0, 3, 16), 0.2, (-0.2, 3.2)),
    "few bins far apart": (bins(0, 100, 4), 1.0, (-20, 120)),
    "predictions far outside": (bins(0, 10, 12), 1.0, (-1000, 1000)),
}
# where two components meet, the curve turns within a fraction of sigma: summed exactly instead
TOO_SHARP = {"narrow", "far apart", "few bins far apart"}


def exact(loss: BalancedLoss, pred: torch.Tensor) -> torch.Tensor:
    """log sum_k w_k p_k, every row with every component."""
    prior, sigma = loss.prior, loss.likelihood.value
    if isinstance(prior, Bins):
        centers, variances = prior.centers, torch.zeros_like(prior.centers)
    else:
        centers, variances = prior.means[:, 0], prior.covariances[:, 0, 0]
    normal = torch.distributions.Normal(centers, (variances + sigma**2).sqrt())
    return torch.logsumexp(prior.weights.log() + normal.log_prob(pred), -1)


def gradients(rows: torch.Tensor, *inputs: torch.Tensor) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(3)
    each = 0.5 + torch.rand(len(rows), generator=g, dtype=D64)  # rows count unequally
    return list(torch.autograd.grad(rows, inputs, grad_outputs=each.to(rows)))


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest error, relative to the number itself or, near its zeros, to its usual size."""
    size = theirs.abs().clamp(min=theirs.abs().median())
    return ((ours - theirs).abs() / size).max().item()


@pytest.mark.parametrize("case", CASES)
def test_grid_equals_exact_sum(case, monkeypatch):
    prior, sigma, (low, high) = CASES[case]
    chunked = []
    monkeypatch.setattr(
        grid_module, "_in_chunks", lambda f, pred: chunked.append(1) or f(pred)
    )  # noticed: a fallback is exact and would prove nothing about the grid
    loss = BalancedLoss(Gaussian(torch.tensor(sigma, dtype=D64), learn_sigma=True), prior)
    g = torch.Generator().manual_seed(0)
    rows = ROWS if "100" in case else 280_000  # enough for a fine grid
    pred = low + (high - low) * torch.rand(rows, 1, generator=g, dtype=D64)
    pred.requires_grad_()
    rows = loss.prior.log_evidence(loss.likelihood, pred, pred.detach())
    oracle = exact(loss, pred)
    assert ((rows - oracle).abs() / oracle.abs().clamp(min=1)).max().item() <= PROMISE
    inputs = (pred, loss.likelihood.sigma)
    for ours, theirs in zip(gradients(rows, *inputs), gradients(oracle, *inputs), strict=True):
        assert relative(ours, theirs) <= PROMISE
    assert bool(chunked) == (case in TOO_SHARP)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("prior", ["16 components", "100 bins"])
def test_depth_map(prior, learn):
    """The whole loss in float32, as depth training calls it, against float64 row by row."""
    prior, sigma, (low, high) = CASES[prior]
    g = torch.Generator().manual_seed(0)
    pred = low + (high - low) * torch.rand(20_000, 1, generator=g)
    target = low + (high - low) * torch.rand(20_000, 1, generator=g)
    loss = BalancedLoss(Gaussian(sigma, learn), prior)
    pred.requires_grad_()
    value = loss(pred, target)
    value.backward()

    x, s = pred.detach().double().requires_grad_(), torch.tensor(sigma, dtype=D64)
    reference = BalancedLoss(Gaussian(s.requires_grad_(), learn), prior)
    s = reference.likelihood.sigma
    rows = ((x - target) ** 2)[:, 0] / 2 / s**2 + torch.log(s * (2 * torch.pi) ** 0.5)
    expected = 2 * s.detach() ** 2 * (rows + exact(reference, x)).mean()
    expected.backward()
    # the promise, plus float32 rounding of a mean of 20,000 rows
    assert value.item() == pytest.approx(expected.item(), rel=2e-5)
    assert (pred.grad - x.grad).abs().max() <= 2e-5 * x.grad.abs().max()
    if learn:
        assert loss.likelihood.sigma.grad.item() == pytest.approx(s.grad.item(), rel=2e-5)


def test_chunks_equal_exact_sum():
    """More peaks than any grid of this many rows could follow."""
    prior, sigma = bins(0, 1000, 300), 0.1
    loss = BalancedLoss(Gaussian(torch.tensor(sigma, dtype=D64), learn_sigma=True), prior)
    pred = (1000 * torch.rand(ROWS, 1, dtype=D64)).requires_grad_()
    rows, oracle = loss.prior.log_evidence(loss.likelihood, pred, pred), exact(loss, pred)
    inputs = (pred, loss.likelihood.sigma)
    # 1e-10: the same sum, in another order
    torch.testing.assert_close(rows, oracle, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(gradients(rows, *inputs), gradients(oracle, *inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-9)


def test_equal_predictions_need_no_grid():
    loss = BalancedLoss(Gaussian(torch.tensor(1.0, dtype=D64)), bins(0, 5, 6))
    pred = torch.full((ROWS, 1), 2.5, dtype=D64)
    rows = loss.prior.log_evidence(loss.likelihood, pred, pred)
    torch.testing.assert_close(rows, exact(loss, pred), rtol=1e-12, atol=1e-12)


def test_the_cubic_is_exact_for_cubics():
    """Hermite interpolation reproduces a cubic, values and slopes."""
    pred = torch.linspace(-3, 7, ROWS, dtype=D64)[:, None].requires_grad_()
    rows = interpolate(lambda x: (x**3 - 2 * x**2 + 5)[:, 0], pred, False)
    x = pred.detach()
    # 1e-12: float64 rounding
    torch.testing.assert_close(rows.detach(), (x**3 - 2 * x**2 + 5)[:, 0], rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(rows.sum(), pred)
    torch.testing.assert_close(slope, 3 * x**2 - 4 * x, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("at", ["between", "on the atoms", "far outside"])
def test_sorted_sums_equal_plain_sum(at):
    """Laplace x bins: running sums from both sides, exact with all their kinks."""
    g = torch.Generator().manual_seed(0)
    centers = 10 * torch.rand(60, generator=g, dtype=D64)  # not sorted
    prior = Bins(centers, torch.rand(60, generator=g, dtype=D64) + 0.01)
    loss = BalancedLoss(Laplace(torch.tensor(0.3, dtype=D64), learn_scale=True), prior)
    pred = 12 * torch.rand(ROWS, 1, generator=g, dtype=D64) - 1
    if at == "on the atoms":
        pred[:60, 0] = centers
    if at == "far outside":
        pred = 1000 * pred - 6000
    pred.requires_grad_()
    rows = prior.log_evidence(loss.likelihood, pred, pred.detach())
    distance = (pred - centers).abs() / loss.likelihood.scale
    oracle = torch.logsumexp(prior.weights.log() - distance, -1) - torch.log(
        2 * loss.likelihood.scale
    )
    # 1e-9: float64 running sums of 60 terms
    torch.testing.assert_close(rows, oracle, rtol=1e-9, atol=1e-9)
    if at != "on the atoms":  # where |x - a| has no derivative
        inputs = (pred, loss.likelihood.scale)
        for ours, theirs in zip(gradients(rows, *inputs), gradients(oracle, *inputs), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


# Huber x bins and Laplace x mixture go through the same grid; their curves have kinks in the
# third derivative, or none.
@pytest.mark.parametrize("name", ["huber", "laplace"])
def test_other_likelihoods_on_the_grid(name):
    g = torch.Generator().manual_seed(0)
    pred = (0.5 + 9 * torch.rand(ROWS, 1, generator=g, dtype=D64)).requires_grad_()
    scale = torch.tensor(0.7, dtype=D64)
    if name == "huber":
        loss = BalancedLoss(Huber(scale, 1.0, learn_scale=True), CASES["100 bins"][0])
        atoms, log_w = loss.prior.centers[:, None], loss.prior.weights.log()
        oracle = loss.likelihood.log_sum(pred, atoms, log_w)
    else:
        loss = BalancedLoss(Laplace(scale, learn_scale=True), CASES["16 components"][0])
        oracle = loss.likelihood._normal_laplace(pred, loss.prior)
    rows = loss.prior.log_evidence(loss.likelihood, pred, pred.detach())
    inputs = (pred, loss.likelihood.scale)
    assert ((rows - oracle).abs() / oracle.abs().clamp(min=1)).max().item() <= PROMISE
    for ours, theirs in zip(gradients(rows, *inputs), gradients(oracle, *inputs), strict=True):
        assert relative(ours, theirs) <= PROMISE
