"""Bad input gets a clear error and nothing else."""

import math
import re

import numpy as np
import pytest
import torch

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
    WeightedLoss,
)
from losses.reweight import bin_weights, histogram, lds_kernel
from tests.losses.pairs import mixture


def rows(*shape: int) -> torch.Tensor:
    return torch.zeros(shape) + torch.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))


def refused(message: str, error: type[Exception] = ValueError):
    return pytest.raises(error, match=message)


@pytest.mark.parametrize("make", [BMC, lambda: BalancedLoss(Gaussian(), Flat()), WeightedLoss])
@pytest.mark.parametrize(
    ("pred", "target"), [((4,), (4, 1)), ((4, 1), (4,)), ((4, 2), (4, 1)), ((4, 1), (5, 1))]
)
def test_shapes_that_would_broadcast(make, pred, target):
    message = f"got pred {re.escape(str(pred))} and target {re.escape(str(target))}; reshape both"
    with refused(message):
        make()(rows(*pred), rows(*target))


def test_vectors_are_rows_of_one_dimension():
    pred, target = torch.randn(2, 6)
    torch.testing.assert_close(BMC()(pred, target), BMC()(pred[:, None], target[:, None]))


def test_images_are_not_rows():
    with refused(r"one shape \(N, D\), got pred \(2, 3, 4\)"):
        BMC()(rows(2, 3, 4), rows(2, 3, 4))


@pytest.mark.parametrize("likelihood", [Gaussian, Laplace, Huber])
def test_batch_of_one(likelihood):
    with refused("at least two labels, got a batch of one.*drop_last=True, or Batch"):
        BalancedLoss(likelihood(), Batch())(rows(1, 1), rows(1, 1))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("make", [BMC, lambda: GAI(mixture(1, torch.float32))])
def test_targets_that_are_not_finite(make, bad):
    target = rows(6, 1)
    target[[2, 4]] = bad
    with refused(r"Targets must be finite; samples \[2, 4\] are not"):
        make()(rows(6, 1), target)


def test_large_targets_are_finite():
    """Their sum is not."""
    target = torch.full((4, 1), 3e38)
    BalancedLoss(Laplace(1.0), Flat())(target.clone(), target)


def test_targets_are_checked_before_anything_is_kept():
    loss = BMC("auto", queue=8)
    with refused("Targets must be finite"):
        loss(rows(2, 1), torch.tensor([[0.0], [math.nan]]))
    assert len(loss.prior.earlier) == 0
    assert loss.likelihood.sigma.isnan()


def test_weighted_loss_checks_targets():
    for weight in (None, torch.ones(2)):
        with refused("Targets must be finite"):
            WeightedLoss()(rows(2, 1), torch.tensor([[0.0], [math.nan]]), weight)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, [1.0, 0.0], [1.0, -2.0]])
@pytest.mark.parametrize("kind", [Gaussian, Laplace, Huber])
def test_scales_that_are_not_positive(kind, sigma):
    with refused("is a standard deviation and must be positive and finite, got"):
        kind(sigma)


def test_other_words_than_auto():
    with refused("sigma must be a positive number or \"auto\", got 'automatic'"):
        Gaussian("automatic")
    with refused("The floor of sigma must be positive, got 0"):
        Gaussian(1.0, floor=0)
    with refused("delta is a number of scales and must be positive, got 0"):
        Huber(1.0, delta=0)


WEIGHTS = [[0.0, 0.0], [1.0, -1.0], [math.nan, 1.0], [math.inf, 1.0], [-1.0, -1.0]]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_prior_weights(weights):
    with refused("mixture weights must be .* sum to a positive number"):
        GaussianMixture(weights, [[0.0], [1.0]], [[[1.0]], [[1.0]]])
    with refused("bin weights must be .* sum to a positive number"):
        Bins([0.0, 1.0], weights)
    with refused("class weights must be .* sum to a positive number"):
        Classes(weights)
    with refused("sample weights must be .* sum to a positive number"):
        GaussianMixture.fit([0.0, 1.0], 1, sample_weight=weights)


def test_a_class_without_samples():
    with refused("A class without training samples has no prior"):
        Classes([1.0, 0.0])


@pytest.mark.parametrize("make", [BMC, WeightedLoss])
def test_sample_weights(make):
    loss = make()
    with refused("Weights must sum to a positive number, got 0"):
        loss(rows(3, 1), rows(3, 1), torch.zeros(3))
    with refused("Weights must sum to a positive number, got -3"):
        loss(rows(3, 1), rows(3, 1), -torch.ones(3))
    with refused("Weights must sum to a positive number, got nan"):
        loss(rows(3, 1), rows(3, 1), torch.tensor([1.0, math.nan, 1]))
    with refused(r"Expected weight \(N,\) = \(3,\), got \(3, 1\)"):
        loss(rows(3, 1), rows(3, 1), torch.ones(3, 1))


@pytest.mark.parametrize("likelihood", [Gaussian, Laplace])
def test_mixture_of_another_dimension(likelihood):
    with refused("the mixture has 2 dimensions, the labels have 1; fit it on labels of the same"):
        BalancedLoss(likelihood(), mixture(2, torch.float32))(rows(4, 1), rows(4, 1))


def test_mixture_arrays():
    with refused(r"got +\(2,\), \(2, 1\), \(1, 1, 1\)"):
        GaussianMixture([1.0, 1.0], [[0.0], [1.0]], [[[1.0]]])
    with refused("every covariance positive definite; its smallest eigenvalue is -1"):
        GaussianMixture([1.0], [[0.0]], [[[-1.0]]])
    with refused("the means must be finite"):
        GaussianMixture([1.0], [[math.nan]], [[[1.0]]])
    with refused(r"at least 3 finite labels of shape \(N, D\), got \(2, 1\)"):
        GaussianMixture.fit([0.0, 1.0], 3)
    with refused("finite labels"):
        GaussianMixture.fit([0.0, math.nan, 1.0], 1)


def test_closed_forms_that_do_not_exist():
    with refused("GaussianMixture has no closed form for a Huber likelihood; use Bins or Batch"):
        BalancedLoss(Huber(), mixture(1, torch.float32))(rows(4, 1), rows(4, 1))
    with refused("closed form for a Laplace likelihood only in one dimension, got 2; use Batch"):
        BalancedLoss(Laplace(), mixture(2, torch.float32))(rows(4, 2), rows(4, 2))
    with refused("Categorical cannot be averaged over label values"):
        BalancedLoss(Categorical(3), Bins([0.0, 1.0], [1.0, 1.0]))(rows(4, 3), torch.zeros(4, 1))
    with refused("Class frequencies do not apply to a Gaussian likelihood"):
        BalancedLoss(Gaussian(), Classes([1.0, 2.0]))(rows(4, 1), rows(4, 1))


@pytest.mark.parametrize("likelihood", [Gaussian, Laplace, Huber])
def test_bins_in_two_dimensions(likelihood):
    with refused("Bins are one-dimensional, the labels have 2 dimensions; use a Gaussian"):
        BalancedLoss(likelihood(), Bins([0.0, 1.0], [1.0, 1.0]))(rows(4, 2), rows(4, 2))


def test_bins_arrays():
    with refused(r"finite centers \(K,\) and weights \(K,\), got \(3,\), \(2,\)"):
        Bins([0.0, 1.0, 2.0], [1.0, 1.0])
    with refused("finite centers"):
        Bins([0.0, math.inf], [1.0, 1.0])


@pytest.mark.parametrize("prior", [Flat, Batch, lambda: mixture(3, torch.float32)])
@pytest.mark.parametrize("sigma", [[1.0, 2.0], [1.0]])
def test_sigma_of_the_wrong_length(prior, sigma):
    with refused(rf"sigma has shape \({len(sigma)},\), the labels have 3 dimensions; give one"):
        BalancedLoss(Gaussian(sigma), prior())(rows(4, 3), rows(4, 3))


def test_strength_and_queue():
    for strength in (-1, math.nan, math.inf):
        with refused("strength must be a finite number >= 0"):
            BMC(strength=strength)
    with refused("Expected queue >= 0 and max_atoms >= 2 or None, got -1 and None"):
        Batch(queue=-1)
    with refused("max_atoms >= 2"):
        Batch(max_atoms=1)


def test_categorical_and_histogram_shapes():
    with refused(r"Categorical expects pred \(N, 3\) and target \(N, 1\), got \(4, 2\)"):
        BalancedLoss(Categorical(3), Flat())(rows(4, 2), rows(4, 1))
    with refused(r"Histogram expects pred \(N, 2\)"):
        BalancedLoss(Histogram([0.0, 1, 2]), Flat())(rows(4, 2), rows(4, 2))
    with refused("Expected 3 class weights, got 2"):
        BalancedLoss(Categorical(3), Classes([1.0, 1.0]))(rows(4, 3), torch.zeros(4, 1))
    with refused("one-dimensional labels, got 2 dimensions"):
        Histogram([0.0, 1, 2]).width(2)
    with refused("at least three increasing numbers"):
        Histogram([0.0, 2, 1])
    with refused("must be >= 0, got -1"):
        Histogram([0.0, 1, 2], soft=-1)
    with refused("median or mean, got 'mode'"):
        Histogram([0.0, 1, 2], point="mode")


def test_densities():
    with refused("2 of 3 labels lie outside the edges"):
        histogram([0.5, 3.0, -1.0], [0, 1])
    with refused("at least two increasing numbers"):
        histogram([0.5], [1, 0])
    with refused("expected finite labels"):
        histogram([math.nan], [0, 1])
    with refused("odd size, got 4"):
        lds_kernel(size=4)
    with refused("kernel is one of gaussian, triang, laplace, got 'box'"):
        lds_kernel("box")
    with refused("scheme is inverse or sqrt_inverse, got 'log'"):
        bin_weights(np.ones(3, dtype=int), "log")
    with refused("the counts must sum to a positive number"):
        bin_weights(np.zeros(3, dtype=int))
    with refused("error is one of mse, l1, huber, focal_mse, focal_l1, got 'rmse'"):
        WeightedLoss("rmse")


def test_bni_takes_bins():
    assert torch.isfinite(BNI(Bins([0.0, 1.0], [1.0, 1.0]))(rows(4, 1), rows(4, 1)))
