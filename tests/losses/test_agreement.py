"""Priors meet on the same distribution; limits where Theorem 1 is a plain loss."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from losses import (
    BMC,
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
    Histogram,
    Huber,
    Laplace,
)
from tests.losses.pairs import CLASSES, D64, EDGES, batch, mixture

LIKELIHOODS = {
    "Gaussian": lambda: Gaussian(torch.tensor(0.9, dtype=D64), True),
    "Laplace": lambda: Laplace(torch.tensor(0.9, dtype=D64), True),
    "Huber": lambda: Huber(torch.tensor(0.9, dtype=D64), 1.3, True),
}


def evaluate(loss: BalancedLoss, pred: torch.Tensor, target: torch.Tensor):
    """value, d/dpred, d/dscale (if there is one)."""
    pred = pred.clone().requires_grad_()
    value = loss(pred, target)
    return value.item(), *torch.autograd.grad(value, [pred, *loss.parameters()])


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_batch_and_bins_agree(name):
    """The same labels, once as a batch, once as bins with their counts. The batch's loss keeps
    its constant, log K in units of the loss; gradients are equal."""
    pred, _ = batch("Gaussian Batch 1", 12)
    target = torch.tensor([0.0, 0, 0, 1, 1, 2, -1, -1, -1, -1, 3, 3], dtype=D64)[:, None]
    centers, counts = target.unique(return_counts=True)
    by_batch = evaluate(BalancedLoss(LIKELIHOODS[name](), Batch()), pred, target)
    by_bins = evaluate(BalancedLoss(LIKELIHOODS[name](), Bins(centers, counts)), pred, target)
    unit = {"Gaussian": 2 * 0.81, "Laplace": 0.9, "Huber": 0.81}[name]
    # 1e-6: integer counts make float32 weights
    assert by_batch[0] - by_bins[0] == pytest.approx(unit * math.log(12), rel=1e-6)
    for ours, theirs in zip(by_batch[1:], by_bins[1:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["Gaussian", "Laplace"])
def test_mixture_and_bins_agree(name):
    """A mixture cut into fine bins: a Riemann sum of the same integral."""
    pred, target = batch("Gaussian Mixture 1", 9)
    prior = mixture(1, D64)
    centers = torch.linspace(-15, 15, 3001, dtype=D64)
    bins = Bins(centers, prior.log_prob(centers[:, None]).exp())
    closed = evaluate(BalancedLoss(LIKELIHOODS[name](), prior), pred, target)
    summed = evaluate(BalancedLoss(LIKELIHOODS[name](), bins), pred, target)
    # a sum over smooth densities of step 0.01; Laplace's kink leaves (step / scale)^2 / 12 = 1e-5
    tolerance = 1e-8 if name == "Gaussian" else 5e-5
    assert closed[0] == pytest.approx(summed[0], rel=tolerance, abs=tolerance)
    for ours, theirs in zip(closed[1:], summed[1:], strict=True):
        # the kink's slope jumps within one bin: step / scale of a gradient of 1/9 per row
        slope = tolerance if name == "Gaussian" else 2e-3
        torch.testing.assert_close(ours, theirs, rtol=slope, atol=slope)


def test_mixture_and_batch_agree():
    """A mixture of one narrow component per label of the batch is the batch."""
    pred, target = batch("Gaussian Batch 3", 8)
    narrow = 1e-9 * torch.eye(3, dtype=D64).expand(8, 3, 3)
    prior = GaussianMixture(torch.ones(8, dtype=D64), target, narrow)
    by_mixture = evaluate(BalancedLoss(LIKELIHOODS["Gaussian"](), prior), pred, target)
    by_batch = evaluate(BalancedLoss(LIKELIHOODS["Gaussian"](), Batch()), pred, target)
    assert by_batch[0] - by_mixture[0] == pytest.approx(2 * 0.81 * math.log(8), rel=1e-7)
    for ours, theirs in zip(by_mixture[1:], by_batch[1:], strict=True):
        # 1e-7: the components' width is 1e-9 of sigma^2
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-8)


def test_many_samples_agree_with_their_mixture():
    """BMC is a Monte-Carlo estimate of GAI (Eq. 3.14): it converges as 1 / sqrt(K)."""
    g = torch.Generator().manual_seed(0)
    samples = 1.2 * torch.randn(40_000, 1, generator=g, dtype=D64)
    prior = GaussianMixture([1.0], [[0.0]], [[[1.44]]])
    pred = torch.linspace(-2, 2, 9, dtype=D64)[:, None]
    s = Gaussian(torch.tensor(0.7, dtype=D64))
    closed = prior.log_evidence(s, pred, pred)
    sampled = s.log_evidence_atoms(
        pred, samples, torch.full((40_000,), -math.log(40_000), dtype=D64)
    )
    # 4 standard errors, sqrt(E[p^2] / E[p]^2 / K) < 0.01 for these predictions
    torch.testing.assert_close(closed, sampled, rtol=0, atol=0.04)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.floats(0.1, 9), st.integers(0, 2**20))
def test_flat_is_the_plain_loss(rows, dims, scale, seed):
    g = torch.Generator().manual_seed(seed)
    pred, target = 3 * torch.randn(2, rows, dims, generator=g, dtype=D64)
    s = torch.tensor(scale, dtype=D64)
    plain = {
        "mse": functional.mse_loss(pred, target) * dims,  # ours sums over the dimensions
        "l1": functional.l1_loss(pred, target) * dims,
        "huber": functional.huber_loss(pred, target, delta=1.3 * scale) * dims,
    }
    ours = {
        "mse": BalancedLoss(Gaussian(s), Flat())(pred, target),
        "l1": BalancedLoss(Laplace(s), Flat())(pred, target),
        "huber": BalancedLoss(Huber(s, 1.3), Flat())(pred, target),
    }
    for name, value in ours.items():
        # 1e-12: float64 rounding; dividing by sigma and multiplying back. Log sigma cancels,
        # so absolute too.
        torch.testing.assert_close(value, plain[name], rtol=1e-12, atol=1e-12)


def test_flat_is_cross_entropy():
    pred, target = batch("Categorical Flat 1", 20)
    expected = functional.cross_entropy(pred, target[:, 0].long())
    value = BalancedLoss(Categorical(CLASSES), Flat())(pred, target[:, 0])
    torch.testing.assert_close(value, expected, rtol=1e-14, atol=0)  # the same rounding
    pred, target = batch("Histogram Flat 1", 20)
    histogram = Histogram(EDGES, soft=0.5)
    expected = functional.cross_entropy(pred, histogram.soft_target(target))
    value = BalancedLoss(histogram, Flat())(pred, target)
    torch.testing.assert_close(value, expected, rtol=1e-14, atol=0)


def test_classes_are_logit_adjustment():
    pred, target = batch("Categorical Classes 1", 20)
    frequencies = torch.tensor([5, 1, 2, 9, 3], dtype=D64)
    expected = functional.cross_entropy(
        pred + (frequencies / frequencies.sum()).log(), target[:, 0].long()
    )
    value = BalancedLoss(Categorical(CLASSES), Classes(frequencies))(pred, target)
    # 1e-12: log p_bal + log evidence - log prior in three steps instead of one
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    labels = [0] * 5 + [1] + [2] * 2 + [3] * 9 + [4] * 3
    fitted = BalancedLoss(Categorical(CLASSES), Classes.fit(labels, CLASSES))
    torch.testing.assert_close(fitted(pred, target), expected, rtol=1e-6, atol=0)  # float32 prior


def test_balanced_histogram_is_logit_adjustment_over_bins():
    pred, target = batch("HardHistogram Bins 1", 20)
    histogram, centers = Histogram(EDGES), (EDGES[1:] + EDGES[:-1]) / 2
    weights = torch.arange(1, 9, dtype=D64) / 36
    bins = torch.bucketize(target[:, 0], EDGES[1:-1])
    loss = BalancedLoss(histogram, Bins(centers, weights), full_nll=True)
    expected = functional.cross_entropy(pred + weights.log(), bins)
    torch.testing.assert_close(loss(pred, target), expected, rtol=1e-12, atol=0)  # three steps


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


def test_small_sigma_bins_and_flat_density():
    """Bins that cover the line evenly and densely are a flat prior."""
    pred, target = batch("Gaussian Bins 1", 10)
    bins = Bins(torch.linspace(-40, 40, 1601, dtype=D64), torch.ones(1601, dtype=D64))
    gradient = evaluate(BNI(bins, torch.tensor(1.0, dtype=D64)), pred, target)[1]
    # a Riemann sum of a Gaussian with 20 steps per sigma is exact to rounding
    torch.testing.assert_close(gradient, mse_gradient(pred, target), rtol=1e-9, atol=1e-9)


def test_wide_mixture_tends_to_mse():
    pred, target = batch("Gaussian Mixture 3", 10)
    for width in (1e2, 1e4):
        wide = width**2 * torch.eye(3, dtype=D64)[None]
        loss = GAI(GaussianMixture(torch.ones(1, dtype=D64), torch.zeros(1, 3), wide), 1.0)
        gap = evaluate(loss, pred, target)[1] - mse_gradient(pred, target)
        # the balancing gradient is -2 sigma^2 / N * pred / (width^2 + sigma^2)
        assert gap.abs().max().item() <= 2 / 10 * pred.abs().max().item() / width**2


@pytest.mark.parametrize("prior", ["Mixture", "Batch", "Bins"])
def test_strength_zero_is_mse(prior):
    """The gradient is MSE's; the value keeps the Gaussian's normaliser, which has none."""
    pred, target = batch(f"Gaussian {prior} 1", 10)
    s = torch.tensor(0.7, dtype=D64)
    makers = {
        "Mixture": lambda: GAI(mixture(1, D64), s, strength=0),
        "Batch": lambda: BMC(s, strength=0),
        "Bins": lambda: BNI(Bins(EDGES, EDGES.abs()), s, strength=0),
    }
    value, gradient = evaluate(makers[prior](), pred, target)
    torch.testing.assert_close(gradient, mse_gradient(pred, target), rtol=1e-12, atol=1e-12)
    constant = 2 * 0.49 * math.log(0.7 * math.sqrt(2 * math.pi))
    expected = functional.mse_loss(pred, target).item() + constant
    assert value == pytest.approx(expected, rel=1e-12)


def test_one_component_shrinks_towards_nothing():
    """One Gaussian N(m, v): the balanced optimum of a label y is where the evidence's pull
    r / (v + s^2) equals the residual's r / s^2, in closed form."""
    m, v, s, y = 1.0, 2.0, 0.8, 3.0
    best = (y * (v + s**2) - m * s**2) / v
    loss = GAI(GaussianMixture([1.0], [[m]], [[[v]]]), torch.tensor(s, dtype=D64))
    pred = torch.tensor([[best]], dtype=D64)
    gradient = evaluate(loss, pred, torch.tensor([[y]], dtype=D64))[1]
    assert gradient.item() == pytest.approx(0, abs=1e-7)  # v is float32
