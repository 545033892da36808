"""Priors meet on the same distribution; limits where Theorem 1 is a plain loss."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from losses import (
    BNI,
    GAI,
    BalancedLoss,
    Batch,
    Bins,
    Categorical,
    Classes,
    Flat,
    Gaussian,
    GaussianMixture,
    Heteroscedastic,
    Huber,
    Laplace,
)
from tests.losses.pairs import (
    CLASSES,
    D64,
    assert_close,
    batch,
    evaluate,
    generator,
    likelihood,
    make,
    mixture,
)


def balanced(name: str, prior) -> BalancedLoss:
    return BalancedLoss(likelihood(name, 1, D64, True), prior)


@pytest.mark.parametrize(("name", "unit"), [("Gaussian", 1.28), ("Laplace", 0.8), ("Huber", 0.64)])
def test_batch_and_bins_agree(name, unit):
    """The same labels, once as a batch, once as bins with their counts. The batch's loss keeps
    its constant, log K in units of the loss; gradients are equal."""
    pred, _ = batch("Gaussian Batch 1", 12)
    target = torch.tensor([0.0, 0, 0, 1, 1, 2, -1, -1, -1, -1, 3, 3], dtype=D64)[:, None]
    centers, counts = target.unique(return_counts=True)
    by_batch = evaluate(balanced(name, Batch()), pred, target)
    by_bins = evaluate(balanced(name, Bins(centers, counts)), pred, target)
    # 1e-6: integer counts make float32 weights
    assert (by_batch[0] - by_bins[0]).item() == pytest.approx(unit * math.log(12), rel=1e-6)
    torch.testing.assert_close(by_batch[1:], by_bins[1:], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["Gaussian", "Laplace"])
def test_mixture_and_bins_agree(name):
    """A mixture cut into fine bins: a Riemann sum of the same integral."""
    pred, target = batch("Gaussian Mixture 1", 9)
    pred, prior = pred.clamp(-2, 3), mixture(1, D64)  # within the labels
    centers = torch.linspace(-15, 15, 3001, dtype=D64)
    bins = Bins(centers, prior.log_prob(centers[:, None]).exp())
    closed = evaluate(balanced(name, prior), pred, target)
    summed = evaluate(balanced(name, bins), pred, target)
    # a sum over smooth densities of step 0.01; Laplace's kink leaves (step / scale)^2 / 12 = 1e-5
    assert_close(closed[0], summed[0], 1e-8 if name == "Gaussian" else 5e-5)
    # the kink's slope jumps within one bin: step / scale of a gradient of 1/9 per sample
    assert_close(closed[1:], summed[1:], 1e-8 if name == "Gaussian" else 2e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.floats(0.1, 9), st.integers(0, 2**20))
def test_flat_is_the_plain_loss(rows, dims, scale, seed):
    g = torch.Generator().manual_seed(seed)
    pred, target = 3 * torch.randn(2, rows, dims, generator=g, dtype=D64)
    s = torch.tensor(scale, dtype=D64)
    for noise, plain in (
        (Gaussian(s), functional.mse_loss(pred, target)),
        (Laplace(s), functional.l1_loss(pred, target)),
        (Huber(s, 1.3), functional.huber_loss(pred, target, delta=1.3 * scale)),
    ):
        # ours sums over the dimensions. 1e-12: float64 rounding; log sigma cancels, so absolute too
        assert_close(BalancedLoss(noise, Flat())(pred, target), plain * dims, 1e-12)


def test_logit_adjustment():
    """Class frequencies, given or fitted."""
    pred, target = batch("Categorical Classes 1", 20)
    frequencies = torch.tensor([5, 1, 2, 9, 3], dtype=D64)
    adjusted = pred + (frequencies / frequencies.sum()).log()
    expected = functional.cross_entropy(adjusted, target[:, 0].long())
    value = BalancedLoss(Categorical(CLASSES), Classes(frequencies))(pred, target)
    # 1e-12: log p_bal + log evidence - log prior in three steps instead of one
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    labels = [0] * 5 + [1] + [2] * 2 + [3] * 9 + [4] * 3
    fitted = BalancedLoss(Categorical(CLASSES), Classes.fit(labels, CLASSES))
    torch.testing.assert_close(fitted(pred, target), expected, rtol=1e-6, atol=0)  # float32 prior


def mse_gradient(pred, target):
    return 2 * (pred - target) / len(pred)


def test_small_sigma_tends_to_mse():
    """GAI's balancing gradient is 2 sigma^2 times a bounded one, so it vanishes with sigma^2."""
    pred, target = batch("Gaussian Mixture 3", 10)
    gaps = []
    for sigma in (1e-1, 1e-2, 3e-3):
        loss = GAI(mixture(3, D64), torch.tensor(sigma, dtype=D64))
        gap = evaluate(loss, pred, target)[1] - mse_gradient(pred, target)
        gaps.append(gap.abs().max().item() / sigma**2)
    # gap / sigma^2 settles: the next term is of relative order sigma^2 over the least variance
    assert gaps[2] == pytest.approx(gaps[1], rel=1e-2)
    assert gaps[2] * 3e-3**2 < 1e-3


def test_even_bins_are_a_flat_prior():
    pred, target = batch("Gaussian Bins 1", 10)
    bins = Bins(torch.linspace(-40, 40, 1601, dtype=D64), torch.ones(1601, dtype=D64))
    gradient = evaluate(BNI(bins, torch.tensor(1.0, dtype=D64)), pred, target)[1]
    # a Riemann sum of a Gaussian with 20 steps per sigma is exact to rounding
    assert_close(gradient, mse_gradient(pred, target), 1e-9)


@pytest.mark.parametrize("width", [1e2, 1e4])
def test_wide_mixture_tends_to_mse(width):
    pred, target = batch("Gaussian Mixture 3", 10)
    wide = width**2 * torch.eye(3, dtype=D64)[None]
    loss = GAI(GaussianMixture(torch.ones(1, dtype=D64), torch.zeros(1, 3), wide), 1.0)
    gap = evaluate(loss, pred, target)[1] - mse_gradient(pred, target)
    # the balancing gradient is -2 sigma^2 / N * pred / (width^2 + sigma^2)
    assert gap.abs().max().item() <= 2 / 10 * pred.abs().max().item() / width**2


@pytest.mark.parametrize("pair", ["Gaussian Mixture 1", "Gaussian Batch 1", "Gaussian Bins 1"])
def test_strength_zero_is_mse(pair):
    """The gradient is MSE's; the value keeps the Gaussian's normaliser, which has none."""
    pred, target = batch(pair, 10)
    value, gradient = evaluate(make(pair, strength=0), pred, target)
    assert_close(gradient, mse_gradient(pred, target), 1e-12)
    constant = 2 * 0.64 * math.log(0.8 * math.sqrt(2 * math.pi))
    expected = functional.mse_loss(pred, target).item() + constant
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_one_component_shrinks_towards_nothing():
    """One Gaussian N(m, v): the balanced optimum of a label y is where the evidence's pull
    r / (v + s^2) equals the residual's r / s^2, in closed form."""
    m, v, s, y = 1.0, 2.0, 0.8, 3.0
    best = (y * (v + s**2) - m * s**2) / v
    loss = GAI(GaussianMixture([1.0], [[m]], [[[v]]]), torch.tensor(s, dtype=D64))
    pred = torch.tensor([[best]], dtype=D64)
    gradient = evaluate(loss, pred, torch.tensor([[y]], dtype=D64))[1]
    assert gradient.item() == pytest.approx(0, abs=1e-7)  # v is float32


@pytest.mark.parametrize("count", [50, 5000])
@pytest.mark.parametrize(
    ("kind", "own", "over"),
    [
        *itertools.product([Laplace, Huber], [False, True], ["batch", "bins"]),
        (Laplace, False, "mixture"),  # the others have no closed form
    ],
)
def test_outside_the_labels_the_plain_loss_leads_back(kind, own, over, count, small_limits):
    count = count // small_limits if over == "batch" else count
    noise = Heteroscedastic(kind(3.0)) if own else kind(3.0)
    labels = 20 + 60 * torch.rand(count, 1, generator=generator(), dtype=D64)
    priors = {
        "batch": Batch,
        "bins": lambda: Bins.fit(labels.numpy(), range(20, 81)),
        "mixture": lambda: GaussianMixture.fit(labels, 2),
    }
    prior, plain = BalancedLoss(noise, priors[over]()), BalancedLoss(noise, Flat())
    for start in (-30.0, 150.0):
        pred = torch.zeros(count, noise.width(1), dtype=D64)
        pred[:, 0] = start
        ours = evaluate(prior, pred, labels)[1][:, 0]
        expected = evaluate(plain, pred, labels)[1][:, 0]
        assert_close(ours, expected, 1e-12)
        assert (ours * (start - 50) > 0).all()
