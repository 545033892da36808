"""Many rows in one dimension: the table, what it must not be asked, and Laplace's running sums,
against the exact sum over the components, in float64."""

import math

import pytest
import torch

from engine.speed.search import compare, search
from losses import BMC, BNI, GAI, BalancedLoss, Bins, Gaussian, GaussianMixture, Huber, Laplace
from losses.fast import fused
from losses.fast.fused import FEW_ROWS
from losses.fast.grid import cells, tabulate
from tests.losses.pairs import D64

ROWS = 16 * FEW_ROWS
PROMISE = 1e-5  # of the largest gradient, of the value (or one) and of sigma's gradient


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
    "a spike": (gaussians([40.0, 0], [15.0, 0.001], [0.7, 0.3]), 0.02, (0, 100)),
    "a spike among many": (
        gaussians([*range(0, 80, 5), 17.3], [5.0] * 16 + [0.01]),
        0.3,
        (0, 80),
    ),
    "100 bins": (bins(0.05, 9.95, 100), 1.0, (0.5, 10)),
    "narrow bins": (bins(0, 3, 16), 0.2, (-0.2, 3.2)),
    "few bins far apart": (bins(0, 100, 4), 1.0, (-20, 120)),
    "bins on the nodes": (bins(0, 128, 129), 0.1, (0, 128)),
    "one gap": (Bins([*range(20), *range(60, 80)], [1.0] * 40), 2.0, (-5, 85)),
    "predictions far outside": (bins(0, 10, 12), 1.0, (-1000, 1000)),
}


def spread(low: float, high: float, rows: int = ROWS, seed: int = 0) -> torch.Tensor:
    pred = low + (high - low) * torch.rand(
        rows, 1, generator=torch.Generator().manual_seed(seed), dtype=D64
    )
    pred[0], pred[-1] = low, high
    return pred


def check(loss: BalancedLoss, pred: torch.Tensor, target: torch.Tensor | None = None) -> None:
    target = pred.detach() + 0.3 if target is None else target
    worst = compare(loss, pred, target)
    assert max(worst.values()) <= PROMISE, worst


@pytest.mark.parametrize("case", CASES)
def test_equals_the_exact_sum(case):
    prior, sigma, (low, high) = CASES[case]
    loss = BalancedLoss(Gaussian(torch.tensor(sigma, dtype=D64), learn_sigma=True), prior)
    check(loss, spread(low, high))


@pytest.mark.parametrize("at", [1e9, -1e5, 40.0])
def test_outliers_do_not_spoil_the_others(at):
    loss = BNI(bins(0, 10, 101), torch.tensor(0.5, dtype=D64), True)
    pred = spread(0, 10)
    pred[77] = at
    target = spread(0, 10, seed=1)
    if abs(at) > 100:  # whose own gradient would be the largest of all
        target[77] = at
    check(loss, pred, target)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("rows", [100, ROWS])
@pytest.mark.parametrize("pair", ["bni", "gai", "laplace"])
def test_predictions_that_are_not_finite(pair, rows, bad):
    """The loss is not finite, as in the definition, and nothing else happens."""
    loss = {
        "bni": BNI(CASES["100 bins"][0], 1.0, True),
        "gai": GAI(CASES["16 components"][0], 1.0),
        "laplace": BalancedLoss(Laplace(1.0), CASES["100 bins"][0]),
    }[pair]
    pred = spread(0, 10, rows)
    pred[7] = bad
    value = loss(pred.requires_grad_(), torch.zeros(rows, 1, dtype=D64))
    plain = loss.rows(pred, torch.zeros(rows, 1, dtype=D64)).mean()
    assert not plain.isfinite()
    assert not value.isfinite()
    value.backward()
    assert pred.grad[:7].isfinite().all()


def test_a_batch_prior_of_many_rows(monkeypatch):
    """Few rows more than the exact sum takes, and a wide sigma: a table of few cells is enough."""
    g = torch.Generator().manual_seed(0)
    pred, target = 40 + 12 * torch.randn(2, FEW_ROWS + 1, 1, generator=g, dtype=D64)
    made = []
    monkeypatch.setattr(fused, "tabulate", lambda *given: made.append(tabulate(*given)) or made[-1])
    check(BMC(torch.tensor(30.0, dtype=D64), True), pred, target)
    assert made
    assert made[0].useful


def test_what_is_not_smooth_enough_is_not_good():
    """A feature far narrower than a cell is seen by the cells beside it."""
    prior = CASES["a spike among many"][0]
    c, v, log_w = prior.means, prior.covariances[:, 0], prior.weights.log()
    for count in (50, 200, 800):
        table = tabulate(c, v, log_w, 0.09, False, (count, -10.0, 90.0), D64)
        cell = int((17.3 + 10) * table.scale)
        assert not table.good[cell]
        assert not table.all_good
        x = -10 + 100 * (torch.arange(100_000, dtype=D64) + 0.5) / 100_000
        value, slope, _ = table.read(x)
        x.requires_grad_()
        exact = prior.log_density(x[:, None], torch.tensor(0.3, dtype=D64))
        exact = exact + math.log(0.3 * math.sqrt(2 * math.pi))
        (exact_slope,) = torch.autograd.grad(exact.sum(), x)
        good = ~table.exceptions(x.detach())
        # what the module's docstring proves, with rho = 24 cells
        assert ((value - exact).abs()[good] <= 2e-7).all()
        assert ((slope - exact_slope).abs()[good] <= 1.2e-5 / (24 * 100 / count)).all()


def test_the_usual_cases_are_read():
    """Not slow: the table of a depth map is good everywhere and has no more cells than needed."""
    for case in ("16 components", "100 bins"):
        prior, sigma, _ = CASES[case]
        atoms = isinstance(prior, Bins)
        c = prior.centers[:, None] if atoms else prior.means
        v = None if atoms else prior.covariances[:, 0]
        ends = cells(c, v, sigma**2)
        assert ends[0] < 1200
        assert tabulate(c, v, prior.weights.log(), sigma**2, False, ends, D64).all_good


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
    expected = reference.likelihood.unit * reference.rows(x, target.double()).mean()
    expected.backward()
    # the promise, plus float32 rounding of a mean of 20,000 rows
    assert value.item() == pytest.approx(expected.item(), rel=2e-5)
    assert (pred.grad - x.grad).abs().max() <= 2e-5 * x.grad.abs().max()
    if learn:
        s = reference.likelihood.sigma
        assert loss.likelihood.sigma.grad.item() == pytest.approx(s.grad.item(), rel=2e-5)


def test_too_many_peaks_are_summed(monkeypatch):
    """More than any table of this many rows could follow."""
    monkeypatch.setattr(fused, "tabulate", None)  # is not called
    loss = BNI(bins(0, 1000, 300), torch.tensor(0.1, dtype=D64), True)
    check(loss, spread(0, 1000, 2 * FEW_ROWS))


def test_equal_predictions():
    loss = BalancedLoss(Gaussian(torch.tensor(1.0, dtype=D64)), bins(0, 5, 6))
    check(loss, torch.full((ROWS, 1), 2.5, dtype=D64))


@pytest.mark.parametrize("at", ["between", "on the atoms", "far outside"])
def test_running_sums_equal_the_plain_sum(at):
    """Laplace x bins: running sums from both sides, exact with all their kinks."""
    g = torch.Generator().manual_seed(0)
    centers = 10 * torch.rand(60, generator=g, dtype=D64)  # not sorted
    prior = Bins(centers, torch.rand(60, generator=g, dtype=D64) + 0.01)
    loss = BalancedLoss(Laplace(torch.tensor(0.3, dtype=D64), learn_scale=True), prior)
    pred = 12 * torch.rand(ROWS // 4, 1, generator=g, dtype=D64) - 1
    if at == "on the atoms":
        pred[:60, 0] = centers
    if at == "far outside":
        pred = 1000 * pred - 6000
    worst = compare(loss, pred, pred + 0.3)
    assert max(worst.values()) <= 1e-9  # float64 running sums of 60 terms


@pytest.mark.parametrize("name", ["huber", "laplace"])
def test_other_likelihoods_of_many_rows(name):
    scale = torch.tensor(0.7, dtype=D64)
    likelihood, prior = {
        "huber": (Huber(scale, 1.0, learn_scale=True), CASES["100 bins"][0]),
        "laplace": (Laplace(scale, learn_scale=True), CASES["16 components"][0]),
    }[name]
    loss = BalancedLoss(likelihood, prior)
    worst = compare(loss, spread(0.5, 9.5, 2 * FEW_ROWS), spread(0.5, 9.5, 2 * FEW_ROWS, 1))
    assert max(worst.values()) <= 1e-12  # the same steps, some rows at a time


def test_random_search():
    """A short run of scripts/search_losses.py."""
    found = search(settings=60, seed=1)
    assert found["tables"] >= 20
    assert found["worst"] <= 1e-4, found
