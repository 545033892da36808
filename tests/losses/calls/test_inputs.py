"""Bad input raises an error that states the reason and the remedy."""

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
    Heteroscedastic,
    Histogram,
    Huber,
    Laplace,
    Product,
    WeightedLoss,
    balanced_mse,
)
from losses.reweight import bin_weights, histogram, lds_kernel
from tests.losses.pairs import mixture

BINS = Bins([0.0, 1.0], [1.0, 1.0])
COARSE = Bins.fit([0.1, 1.9], [0.0, 2.0, 4.0])
LINE, PLANE = mixture(1, torch.float32), mixture(2, torch.float32)
ONE = [1.0], [[0.0]], [[[1.0]]]  # a mixture
LOCATIONS = (Gaussian, Laplace, Huber)
NAN = math.nan


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def call(likelihood, prior, dims: int = 1, width: int | None = None):
    """Return a call of a loss on four samples."""
    return lambda: BalancedLoss(likelihood, prior)(zeros(4, width or dims), zeros(4, dims))


BUILT = [  # what is built, the message
    (lambda: Gaussian("automatic"), "sigma must be a positive number or \"auto\", got 'automatic'"),
    (lambda: Gaussian([1.0, "auto"]), r'sigma must be a positive number or "auto", got \[1.0'),
    (lambda: BMC(sigma=None), 'sigma must be a positive number or "auto", got None'),
    (lambda: BMC(reduction="avg"), 'reduction must be "mean", "sum" or "none", got \'avg\''),
    (lambda: Gaussian(1.0, floor=0), "The floor of sigma must be positive, got 0"),
    (lambda: Huber(1.0, delta=0), "delta is a number of scales and must be positive, got 0"),
    (lambda: BMC(strength=-1), "strength must be a finite number >= 0"),
    (lambda: BMC(strength=math.inf), "strength must be a finite number >= 0"),
    (lambda: Batch(queue=-1), "queue >= 0 and max_atoms >= 2 or None, got -1 and None"),
    (lambda: Batch(queue=1.5), "got 1.5 and None"),
    (lambda: Batch(max_atoms=1), "max_atoms >= 2"),
    (lambda: BalancedLoss(Gaussian(), Flat(), full_nll=True), "use another prior than Flat"),
    *(
        (lambda pair=pair: BalancedLoss(*pair), message)
        for *pair, message in (
            (Huber(), LINE, "no closed form for a Huber likelihood; use Bins or Batch"),
            (Huber(), Product([LINE, LINE]), "no closed form for a Huber"),
            (Histogram([0.0, 1, 2]), LINE, "no closed form for a Histogram"),
            (Categorical(3), BINS, "Categorical cannot be averaged over label values"),
            (Categorical(3), Batch(), "Categorical cannot be averaged over label values"),
            (Gaussian(), Classes([1.0, 2.0]), "Class frequencies do not apply to a Gaussian likel"),
            (Histogram([0.0, 1, 2]), COARSE, "fit Bins with the edges of the Histogram"),
        )
    ),
    (lambda: Classes([1.0, 0.0]), "A class without training samples has no prior"),
    (lambda: GaussianMixture(*ONE[:2], [[[1.0]]] * 2), r"got +\(1,\), \(1, 1\), \(2, 1, 1\)"),
    (lambda: GaussianMixture(*ONE[:2], [[[-1.0]]]), "definite; its smallest eigenvalue is -1"),
    (lambda: GaussianMixture([1.0], [[NAN]], [[[1.0]]]), "the means must be finite"),
    (lambda: GaussianMixture.fit([0.0, 1.0], 3), r"at least 3 finite .* \(N, D\), got \(2, 1\)"),
    (lambda: GaussianMixture.fit([0.0, NAN, 1.0], 1), "finite labels"),
    (lambda: Bins([0.0, 1.0, 2.0], [1.0, 1.0]), r"widths \(K,\) > 0, got \(3,\), \(2,\)"),
    (lambda: Bins([0.0, math.inf], [1.0, 1.0]), "finite centers"),
    (lambda: Histogram([0.0, 1, 2]).width(2), "one-dimensional labels, got 2 dimensions"),
    (lambda: Histogram([0.0, 2, 1]), "at least three increasing numbers"),
    (lambda: Histogram([0.0, 1, 2], soft=-1), "must be >= 0, got -1"),
    (lambda: Histogram([0.0, 1, 2], point="mode"), "median or mean, got 'mode'"),
    (lambda: histogram([0.5, 3.0, -1.0], [0, 1]), "2 of 3 labels lie outside the edges"),
    (lambda: histogram([0.5], [1, 0]), "at least two increasing numbers"),
    (lambda: histogram([NAN], [0, 1]), "expected finite labels"),
    (lambda: lds_kernel(size=4), "odd size, got 4"),
    (lambda: lds_kernel("box"), "kernel is one of gaussian, triang, laplace, got 'box'"),
    (lambda: bin_weights(np.ones(3, int), "log"), "scheme is inverse or sqrt_inverse, got 'log'"),
    (lambda: bin_weights(np.zeros(3, int)), "the counts must sum to a positive number"),
    (lambda: WeightedLoss("rmse"), "error is one of mse, l1, huber, focal_mse, focal_l1, got 'rm"),
    *(
        (lambda kind=kind, sigma=sigma: kind(sigma), "a standard deviation and must be positive")
        for kind in LOCATIONS
        for sigma in (0.0, -1.0, NAN, math.inf, [1.0, 0.0])
    ),
    *(
        (lambda make=make, weights=weights: make(weights), f"{name} weights must be .* sum to a")
        for weights in ([0.0, 0.0], [2.0, -1.0], [NAN, 1.0], [math.inf, 1.0])
        for name, make in {
            "mixture": lambda w: GaussianMixture(w, [[0.0], [1.0]], [[[1.0]], [[1.0]]]),
            "bin": lambda w: Bins([0.0, 1.0], w),
            "class": Classes,
            "sample": lambda w: GaussianMixture.fit([0.0, 1.0], 1, sample_weight=w),
        }.items()
    ),
]
CALLS = [  # the call, the message
    *(
        (
            call(kind(), PLANE),
            "the mixture has 2 dimensions, the labels have 1; fit it on labels of",
        )
        for kind in (Gaussian, Laplace)
    ),
    (call(Laplace(), PLANE, 2), "a Laplace likelihood only in one dimension, got 2; use Batch"),
    (
        call(Categorical(3), Flat(), 1, 2),
        r"Categorical expects pred \(N, 3\) and target \(N, 1\), got pred \(4, 2\)",
    ),
    *(
        (
            lambda bad=bad: BalancedLoss(Categorical(3), Flat())(zeros(1, 3), torch.tensor([bad])),
            f"Expected classes as whole numbers from 0 to 2, got {bad}",
        )
        for bad in (-1, 3, 0.5)
    ),
    (call(Histogram([0.0, 1, 2]), Flat(), 1, 3), r"Histogram expects pred \(N, 2\)"),
    (call(Categorical(3), Flat(), 2, 3), "one-dimensional labels, got 2 dimensions"),
    (call(Heteroscedastic(Gaussian()), Flat(), 2), r"Heteroscedastic expects pred \(N, 4\)"),
    (call(Categorical(3), Classes([1.0, 1.0]), 1, 3), "Expected 3 class weights, got 2"),
    (lambda: BMC()(zeros(2, 3, 4), zeros(2, 3, 4)), r"target \(N, 4\), got pred \(2, 3, 4\)"),
    *(
        (call(kind(), BINS, 2), "Bins are one-dimensional, the labels have 2 dimensions; use a Gau")
        for kind in LOCATIONS
    ),
    *(
        (
            call(Gaussian(sigma), prior, 3),
            rf"sigma has shape \({len(sigma)},\), the labels have 3 dimensions; give one",
        )
        for prior in (Flat(), Batch(), mixture(3, torch.float32))
        for sigma in ([1.0, 2.0], [1.0])
    ),
]
TYPES = [
    (lambda: BNI(torch.zeros(9)), r"BNI expects a Bins, got Tensor; use Bins.fit\(labels, ...\)"),
    (lambda: GAI(np.zeros(9)), "GAI expects a GaussianMixture, got ndarray; use GaussianMixture.f"),
    (lambda: BalancedLoss(Batch(), Gaussian()), "BalancedLoss expects a Likelihood, got Batch"),
    (lambda: BMC()(zeros(4, 1), np.zeros((4, 1))), "Expected tensors, got Tensor and ndarray; use"),
    *(
        (lambda loss=loss: loss([0.0, 1.0], zeros(2, 1)), "Expected tensors, got list and Tensor")
        for loss in (BMC(), WeightedLoss())
    ),
    (lambda: BMC()(zeros(4, 1), zeros(4, 1), np.ones(4)), "Expected weight as a tensor, got nda"),
    (lambda: balanced_mse(zeros(3, 1), zeros(3, 1), zeros(5)), "expects a Prior, got Tensor"),
]


@pytest.mark.parametrize(("called", "message"), [*BUILT, *CALLS, *TYPES])
def test_bad_input_is_refused(called, message):
    with pytest.raises(TypeError if (called, message) in TYPES else ValueError, match=message):
        called()


LOSSES = [BMC, lambda: BalancedLoss(Gaussian(), Flat()), WeightedLoss]


@pytest.mark.parametrize("make", LOSSES)
@pytest.mark.parametrize(
    ("pred", "target"), [((4,), (4, 1)), ((4, 1), (4,)), ((4, 2), (4, 1)), ((4, 1), (5, 1))]
)
def test_shapes_that_would_broadcast(make, pred, target):
    message = f"got pred {re.escape(str(pred))} and target {re.escape(str(target))}; reshape both"
    with pytest.raises(ValueError, match=message):
        make()(zeros(*pred), zeros(*target))


@pytest.mark.parametrize("make", [BMC, WeightedLoss])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([0.0, 0, 0], "Weights must sum to a positive number, got 0"),
        ([-1.0, -1, -1], "Weights must sum to a positive number, got -3"),
        ([1.0, NAN, 1], "Weights must sum to a positive number, got nan"),
        ([[1.0], [1], [1]], r"Expected weight \(N,\) = \(3,\), got \(3, 1\)"),
    ],
)
def test_sample_weights(make, weight, message):
    with pytest.raises(ValueError, match=message):
        make()(zeros(3, 1), zeros(3, 1), torch.tensor(weight))


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("weight", [None, torch.tensor([0.0, 1, 1, 1, 1, 1])])
@pytest.mark.parametrize("make", [BMC, lambda: GAI(mixture(1, torch.float32)), WeightedLoss])
def test_targets_that_are_not_finite(make, weight, bad):
    target = zeros(6, 1)
    target[[2, 4]] = bad
    with pytest.raises(ValueError, match=r"Targets must be finite; samples \[2, 4\] are not"):
        make()(zeros(6, 1), target, weight)


@pytest.mark.parametrize("missing", [NAN, math.inf, 1e20, -3e38])
@pytest.mark.parametrize("make", [BMC, lambda: GAI(mixture(1, torch.float32)), WeightedLoss])
def test_labels_of_weight_zero_may_be_anything(make, missing):
    pred, target = zeros(3, 1).requires_grad_(), torch.tensor([[0.0], [1], [missing]])
    value = make()(pred, target, torch.tensor([1.0, 1, 0]))
    expected = make()(pred[:2], target[:2], torch.ones(2)) * (2 / 3 if make is WeightedLoss else 1)
    slopes = [torch.autograd.grad(each, pred)[0] for each in (value, expected)]
    torch.testing.assert_close([value, slopes[0]], [expected, slopes[1]])


def test_targets_are_checked_before_any_state_changes():
    loss = BMC("auto", queue=8)
    with pytest.raises(ValueError, match="Targets must be finite"):
        loss(zeros(2, 1), torch.tensor([[0.0], [NAN]]))
    assert len(loss.prior.earlier) == 0
    assert loss.likelihood.sigma.isnan()


def test_input_that_is_accepted():
    pred, target = torch.randn(2, 6)
    torch.testing.assert_close(BMC()(pred, target), BMC()(pred[:, None], target[:, None]))
    large = torch.full((4, 1), 3e38)  # their sum is not finite
    BalancedLoss(Laplace(1.0), Flat())(large.clone(), large)
    assert torch.isfinite(BNI(BINS)(zeros(4, 1), zeros(4, 1)))


def test_a_prior_does_not_share_memory_with_what_it_was_made_of():
    centers, means, covariances = torch.arange(3.0), torch.zeros(1, 1), torch.ones(1, 1, 1)
    bins, mix = Bins(centers, torch.ones(3)), GaussianMixture(torch.ones(1), means, covariances)
    for given in (centers, means, covariances):
        given.fill_(9)
    assert bins.centers.tolist() == [0, 1, 2]
    assert (mix.means.item(), mix.covariances.item()) == (0, 1)
