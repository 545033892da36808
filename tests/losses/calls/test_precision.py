"""Half precision of baselines and decoded histograms, and float32 where labels are far apart.

Inputs in half precision are converted to float32 unchanged, so a loss or a decoded prediction
differs by the rounding of the inputs only. test_pairs.py has the other losses.
"""

import numpy as np
import pytest
import torch

from losses import BNI, Bins, Histogram, WeightedLoss
from tests.losses.pairs import D64, assert_close, evaluate, generator

LOW = [torch.float16, torch.bfloat16]


def in_both(loss, pred: torch.Tensor, target: torch.Tensor) -> list[list[torch.Tensor]]:
    """Return value and gradients in float32 and in float64."""
    single = [x.to(D64) for x in evaluate(loss, pred, target)]
    return [single, evaluate(loss.double(), pred.double(), target.double())]


@pytest.mark.parametrize("options", [{}, {"normalise": True}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("error", ["mse", "l1", "huber", "focal_mse", "focal_l1"])
def test_weighted_errors_are_computed_in_float32(error, dtype, weighted, options):
    """Squares of up to 100^2 exceed the digits of both types."""
    loss, g = WeightedLoss(error, **options), generator()
    low = [(40 + 20 * torch.randn(300, 2, generator=g)).to(dtype) for _ in range(2)]
    low += [torch.rand(300, generator=g).to(dtype)] * weighted
    expected = loss(*(x.float() for x in low))
    value, slope = evaluate(loss, *low, call=torch.autocast("cpu", dtype=dtype)(loss))
    assert loss(*low) == value == expected
    assert value.dtype == torch.float32
    assert slope.isfinite().all()


@pytest.mark.parametrize("dtype", [*LOW, torch.int64])
@pytest.mark.parametrize(
    "loss", [BNI(Bins([-1.0, 0, 1], [1.0, 2, 1]), 1.0), WeightedLoss(normalise=True)]
)
def test_weights_are_summed_in_float32(loss, dtype):
    """65,504 is the largest float16."""
    pred, target = torch.randn(2, 70_000, 1, generator=generator())
    weight = torch.ones(70_000, dtype=dtype)
    torch.testing.assert_close(loss(pred, target, weight), loss(pred, target))


@pytest.mark.parametrize("autocast", [None, *LOW])
@pytest.mark.parametrize("logits", [*LOW, torch.float32, D64])
@pytest.mark.parametrize("point", ["mean", "median"])
def test_histograms_are_decoded_in_float32(point, logits, autocast):
    """Or in float64, against the inverse of the piecewise linear distribution function."""
    kind = D64 if logits == D64 else torch.float32
    likelihood = Histogram((torch.arange(0, 122) - 0.5).to(kind), soft=1.5)
    pred = (3 * torch.randn(200, 121, generator=generator())).to(logits)
    with torch.autocast("cpu", dtype=autocast or LOW[0], enabled=autocast is not None):
        found = likelihood.decode(pred, point)
    assert (found.dtype, found.shape) == (kind, (200, 1))
    edges, mass = likelihood.edges.double().numpy(), pred.double().softmax(-1).numpy()
    expected = mass @ (edges[1:] + edges[:-1]) / 2
    if point == "median":
        expected = [np.interp(0.5, [0, *np.cumsum(row)], edges) for row in mass]
    # 1e-3 years: float32 sums of 121 masses, over the mass of the median's bin
    off = 1.5e-11 if logits == D64 else 1e-3  # float64: rounding of labels up to 121
    np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=off)


@pytest.mark.parametrize("far", [1e4, 1e6])
@pytest.mark.parametrize("learn", [False, True])
def test_a_center_far_away_costs_no_digits(far, learn):
    """Neither of samples near the other centers nor of those near it."""
    centers = torch.tensor([0.0, 1, 2, 3, far])
    pred = torch.tensor([0.3, 1.4, 2.2, far + 0.5, far - 0.25])[:, None]
    target = torch.tensor([0.0, 1, 3, far, far])[:, None]
    both = in_both(BNI(Bins(centers, torch.ones(5)), 1.0, learn), pred, target)
    assert_close(*both, 1e-5)  # float32 rounding of a few terms of order one
