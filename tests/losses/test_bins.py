"""Bins: counts, powers, and widths that differ."""

import numpy as np
import pytest
import torch

from losses import (
    BalancedLoss,
    Batch,
    Bins,
    Flat,
    Gaussian,
    GaussianMixture,
    Heteroscedastic,
    Histogram,
    Huber,
    Laplace,
    Product,
    Subspace,
    balanced_mse,
)
from losses.reweight import histogram
from tests.losses.pairs import D64, EDGES, assert_close, batch, evaluate, generator


def test_labels_of_several_dimensions_and_powers_that_are_no_number_are_refused():
    for labels in (np.ones((4, 2)), torch.ones(4, 2)):
        with pytest.raises(ValueError, match=r"labels of one dimension, .* got \(4, 2\)"):
            Bins.fit(labels, [0, 1, 2])
    for power in (np.nan, np.inf):
        with pytest.raises(ValueError, match="power must be a finite number, got"):
            Bins([0.0, 1.0], [1.0, 1.0], power)


def test_bins_fit_counts_labels():
    labels, edges, triangle = [0.5, 0.6, 2.5, 0.7], [0, 1, 2, 3], {"kernel": "triang", "size": 3}
    prior = Bins.fit(labels, edges)
    assert prior.centers.tolist() == [0.5, 2.5]  # a bin without a label is no atom
    assert prior.weights.tolist() == [0.75, 0.25]
    # LDS: counts (3, 0, 1) by the kernel (1/2, 1, 1/2) of peak one, zeros beyond the ends
    smoothed = Bins.fit(labels, edges, triangle)
    assert smoothed.weights.tolist() == pytest.approx([3 / 6, 2 / 6, 1 / 6])
    # in whole numbers (1, 0, 2, 0) become (1, 1, 2, 1), as 1/2 + 2/2 is rounded down
    rounded = Bins.fit([0.5, 2.5, 2.6], [*edges, 4], {**triangle, "whole": True})
    assert rounded.weights.tolist() == pytest.approx([1 / 5, 1 / 5, 2 / 5, 1 / 5])
    # empty bins below are filled, and take no part in the smoothing: (., 2, 1) -> (2.5, 2.5, 2)
    filled = Bins.fit([1.5, 1.6, 2.5], edges, triangle, fill_below=True)
    assert filled.weights.tolist() == pytest.approx([2.5 / 7, 2.5 / 7, 2 / 7])


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, list])
def test_centers_and_means_keep_their_digits(convert):
    labels = 1e9 + np.arange(100.0)
    centers = convert(labels)
    assert len(Bins(centers, torch.ones(100)).centers.unique()) == 100
    assert len(Bins(convert(labels.astype(int)), torch.ones(100)).centers.unique()) == 100
    assert len(Bins.fit(labels, np.arange(101) + 1e9 - 0.5).centers.unique()) == 100
    means = labels[:, None].tolist() if convert is list else convert(labels[:, None])
    prior = GaussianMixture(torch.ones(100), means, torch.ones(100, 1, 1))
    assert len(prior.means.unique()) == 100
    assert Histogram(convert(labels)).edges.diff().min() == 1


@pytest.mark.parametrize("shape", [Gaussian, Laplace, Huber])
@pytest.mark.parametrize("own", [Heteroscedastic, lambda shape: shape], ids=["own", "one"])
def test_centers_in_float64_with_weights_in_float32(shape, own):
    """Labels at 2^24, on which float32 is exact only for even numbers."""
    far, loss = 2.0**24, []
    for at, dtype in ((far, torch.float32), (0.0, D64)):
        prior = Bins(at + np.array([0.0, 1.0, 5.0]), [1.0, 2.0, 1.0])
        target = torch.tensor([[0.0], [2.0], [4.0]], dtype=dtype) + at
        likelihood = own(shape(2.0))
        pred = torch.cat([target + 2.0, 0 * target], 1)[:, : likelihood.width(1)]
        weight = torch.tensor([1.0, 2.0, 0.0])
        loss.append(BalancedLoss(likelihood, prior)(pred, target, weight))
    assert loss[0].dtype == torch.float32
    assert loss[0].item() == pytest.approx(loss[1].item(), rel=1e-5)


def test_fractional_sample_weights():
    prior = Bins.fit([0.5, 0.5, 1.5], [0, 1, 2], sample_weight=[0.9, 1.9, 7.2])
    assert prior.weights.tolist() == pytest.approx([0.28, 0.72])
    labels = np.linspace(0, 10, 1001)
    share = np.random.default_rng(0).random(1001)
    prior = Bins.fit(labels, np.linspace(0, 10, 8), sample_weight=share)  # no false "outside"
    assert prior.weights.sum().item() == pytest.approx(1)
    assert histogram([0.5, 1.5], [0, 1, 2], [2.0, 3.0]).dtype == np.int64  # whole: counts
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        histogram([0.5, 1.5], [0, 1, 2], [-1.0, 2])
    tiny = histogram([0.5, 1.5], [0, 1, 2], [1e17, 0.25])
    assert tiny.tolist() == [1e17, 0.25]


UNEVEN = [0.0, 1, 2, 4, 10]


@pytest.mark.parametrize(
    "options", [{"power": 0.0}, {"power": 0.5}, {}, {"smoothing": {"padding": "reflect"}}]
)
def test_powers_and_smoothing_are_of_densities(options):
    """Labels uniform on 0..10 stay so."""
    prior = Bins.fit(np.linspace(0.005, 9.995, 1000), UNEVEN, **options)
    assert prior.weights.tolist() == pytest.approx([0.1, 0.1, 0.2, 0.6], rel=1e-6)


UNIFORM = torch.linspace(0.005, 9.995, 1000, dtype=D64)


@pytest.mark.parametrize(
    "prior",
    [
        *(Bins.fit(UNIFORM.numpy(), UNEVEN, power=power) for power in (0.5, 1.0)),
        *(Bins(UNIFORM, torch.ones(1000, dtype=D64), power=power) for power in (0.5, 1.0)),
        Batch(),
    ],
)
def test_a_histogram_balances_labels_not_bins(prior):
    """The best logits for uniform labels are uniform over labels, and so is their median."""
    likelihood = Histogram(torch.tensor(UNEVEN, dtype=D64))
    loss = BalancedLoss(likelihood, prior)
    logits = torch.tensor([0.1, 0.1, 0.2, 0.6], dtype=D64).log().expand(1000, 4)
    slope = evaluate(loss, logits, UNIFORM[:, None])[1].sum(0)
    assert_close(slope, torch.zeros_like(slope), 1e-7)  # the weights of counts are float32
    assert likelihood.decode(logits[:1]).item() == pytest.approx(5.0)


@pytest.mark.parametrize("edges", [[0.0, 1, 2, 3, 4], [0.0, 1, 2, 3.5, 4]])
@pytest.mark.parametrize("power", [0.5, 1.0, None])
def test_soft_targets_and_an_empty_bin_have_a_minimum(edges, power):
    """The loss fell linearly with the logit of a bin that no label is in, but soft targets are."""
    target = torch.tensor([[0.5], [1.5], [3.8], [0.7]], dtype=D64)
    prior = Batch() if power is None else Bins.fit(target[:, 0], edges, power=power)
    loss = BalancedLoss(Histogram(torch.tensor(edges, dtype=D64), soft=0.5), prior)
    logits = torch.tensor([[0.0, 0, z, 0] for z in (0, 100, 1000)], dtype=D64)
    near, far, further = (loss(row.expand(4, 4), target).item() for row in logits)
    assert near < far < further


def test_theorem_1_on_uneven_bins():
    """Summed over the bins, the model's p_train(y | x) is one."""
    labels = np.random.default_rng(0).gamma(2, 1.2, 500).clip(0, 10)
    for power in (0.5, 1.0):
        prior = Bins.fit(labels, UNEVEN, power=power)
        loss = BalancedLoss(Histogram(UNEVEN), prior, full_nll=True)
        pred = torch.randn(1, 4, generator=generator(), dtype=D64)
        rows = loss.rows(pred.expand(4, -1), prior.centers.to(D64)[:, None])
        assert (-rows).exp().sum().item() == pytest.approx(1)


def test_a_label_has_the_probability_of_its_own_bin():
    prior = Bins.fit([0.5, 3.0, 5.0, 6, 7], UNEVEN)
    at = prior.log_prob(torch.tensor([[4.5], [2.1], [3.9], [0.2]])).exp()  # 4.5 is nearest to 3
    assert at.tolist() == pytest.approx([0.6, 0.2, 0.2, 0.2])


@pytest.mark.parametrize("count", [20, 5000])
@pytest.mark.parametrize("kind", [Gaussian, Laplace, Huber])
def test_no_power_is_the_plain_loss(kind, count):
    likelihood = kind(torch.tensor(3.0, dtype=D64))
    prior = Bins.fit(np.arange(11.0), np.arange(-0.5, 11), power=0)
    pred = torch.linspace(-5, 15, count, dtype=D64)[:, None]
    target = torch.full_like(pred, 10.0)
    ours, plain = (evaluate(BalancedLoss(likelihood, p), pred, target) for p in (prior, Flat()))
    assert_close(ours, plain, 1e-12)


@pytest.mark.parametrize("kind", [Gaussian, Laplace, Huber])
def test_a_learned_scale_stays_above_a_quarter_of_a_bin(kind):
    """Below, predictions between two centres have no evidence, and the loss no minimum."""
    y = 10 * torch.rand(512, 1, generator=generator())
    prior = Bins.fit(y.numpy(), np.linspace(0, 10, 6))
    likelihood = kind(1.0, **{"learn_sigma" if kind is Gaussian else "learn_scale": True})
    loss = BalancedLoss(likelihood, prior)
    optimiser = torch.optim.Adam(loss.parameters(), 0.05)
    for _ in range(60):
        optimiser.zero_grad()
        loss(y + 0.05 * torch.randn(512, 1, generator=generator()), y).backward()
        optimiser.step()
    assert likelihood.value.item() >= 0.5
    assert kind(0.01).value.item() == pytest.approx(0.01)  # a fixed one is the caller's


WIDE = Bins.fit([0.5, 1.5, 2.5], [-1000, 0, 1, 2, 3, 1000])  # the outermost are empty


@pytest.mark.parametrize("prior", [WIDE, Product([Flat(), WIDE]), Subspace(WIDE, torch.ones(1, 1))])
def test_the_least_scale_is_of_bins_with_labels_at_any_depth(prior):
    assert BalancedLoss(Gaussian(0.1, True), prior).sigma.item() == 0.25


@pytest.mark.parametrize("learn", [False, True])
def test_a_scale_given_to_the_function_is_the_callers(learn: bool):
    sigma = torch.tensor(0.1, requires_grad=learn)
    pred, target = torch.linspace(-1, 4, 8)[:, None], torch.linspace(0, 3, 8)[:, None]
    value = balanced_mse(pred, target, WIDE, sigma)
    assert_close(value.detach(), balanced_mse(pred, target, WIDE, 0.1), 1e-6)
    assert value.requires_grad == learn


@pytest.mark.parametrize("edges", [EDGES, torch.tensor([-4.0, -1, 0, 0.5, 4], dtype=D64)])
def test_no_power_leaves_a_histogram_unchanged(edges):
    """Also where the prior's bins are not the histogram's, or some are empty."""
    centers = torch.linspace(-3.9, 3.9, 40, dtype=D64)
    bins = Bins(centers, (centers < 2).double() * torch.rand(40, dtype=D64), power=0.0)
    pred = torch.randn(9, len(edges) - 1, dtype=D64)
    _, target = batch("Histogram Bins 1", 9)
    histogram = Histogram(edges, soft=0.5)
    ours, plain = (BalancedLoss(histogram, p)(pred, target) for p in (bins, Flat()))
    assert torch.equal(ours, plain)


def test_a_power_is_of_the_histogram_s_own_bins():
    edges = torch.tensor([-4.0, 0, 1, 4], dtype=D64)
    p = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=D64)
    bins = Bins(torch.tensor([-3.0, -1, 0.5, 2], dtype=D64), p, power=0.5)
    pred = torch.randn(5, 3, dtype=D64)
    made = bins.log_evidence(Histogram(edges), pred, pred[:, :1])
    p_of_bins = torch.tensor([0.3, 0.3, 0.4], dtype=D64)  # two of the four are in one
    w = (p_of_bins / edges.diff()).sqrt()
    expected = (pred.softmax(-1) * w).sum(-1).log() - p.sqrt().sum().log()
    torch.testing.assert_close(made, expected)


@pytest.mark.parametrize("smoothing", [2.0, True, "gaussian"])
def test_smoothing_must_be_settings_of_lds(smoothing):
    with pytest.raises(TypeError, match=r"smoothing is a dict of LDS settings.*got"):
        Bins.fit(torch.arange(4.0), EDGES, smoothing=smoothing)
