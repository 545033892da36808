"""Half precision: what comes in low precision is taken as it is, and worked on in float32. So a
loss or a decoded prediction is off by the rounding of the inputs and by nothing else.
"""

import math

import pytest
import torch

from losses import Categorical, Histogram, WeightedLoss
from tests.losses.pairs import PAIRS, batch, make

LOW = [torch.float16, torch.bfloat16]
ERRORS = ["mse", "l1", "huber", "focal_mse", "focal_l1"]


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("pair", PAIRS)
def test_every_pair_with_everything_in_low_precision(pair, dtype):
    """pred, target and weight; the same numbers in float32 give the same loss and gradient."""
    results = []
    for autocast in (True, False):
        pred, target = (part.to(dtype) for part in batch(pair, 6, torch.float32))
        weight = torch.linspace(0.1, 1, 6).to(dtype)
        if not autocast:
            pred, target, weight = pred.float(), target.float(), weight.float()
        pred.requires_grad_()
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            value = make(pair, torch.float32)(pred, target, weight)
        assert value.dtype == torch.float32
        value.backward()
        results.append((value.detach(), pred.grad))
    (low, low_slope), (value, slope) = results
    torch.testing.assert_close(low, value, rtol=0, atol=0)
    torch.testing.assert_close(low_slope, slope.to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("error", ["mse", "focal_mse"])
def test_weighted_errors_do_not_overflow(error, dtype):
    """70 against 30 is 1600; its square is beyond float16, and beyond bfloat16's digits."""
    pred, target = torch.full((8, 1), 70.0), torch.full((8, 1), 30.0)
    with torch.autocast("cpu", dtype=dtype):
        value = WeightedLoss(error)(pred, target, torch.ones(8))
    factor = 1 if error == "mse" else 2 / (1 + math.exp(-0.2 * 40)) - 1
    assert value.item() == pytest.approx(1600 * factor, rel=1e-6)  # float32


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("error", ERRORS)
def test_weighted_errors_are_computed_in_float32(error, dtype, weighted, normalise):
    loss = WeightedLoss(error, normalise)
    g = torch.Generator().manual_seed(0)
    pred, target = ((40 + 20 * torch.randn(300, 2, generator=g)).to(dtype) for _ in range(2))
    weight = torch.rand(300, generator=g).to(dtype) if weighted else None
    expected = loss(pred.float(), target.float(), None if weight is None else weight.float())
    assert loss(pred, target, weight) == expected
    pred.requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = loss(pred, target, weight)
    assert value.dtype == torch.float32
    assert value == expected
    value.backward()
    assert torch.isfinite(pred.grad).all()


def test_very_many_weights_in_float16():
    """Their sum is beyond float16."""
    pred, target = torch.full((70_000, 1), 2.0), torch.zeros(70_000, 1)
    loss = WeightedLoss("mse", normalise=True)
    assert loss(pred, target, torch.ones(70_000, dtype=torch.float16)).item() == pytest.approx(4)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("logits", [*LOW, torch.float32])
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("point", ["mean", "median"])
def test_histograms_are_decoded_in_float32(point, dtype, logits, autocast):
    likelihood = Histogram(torch.arange(0, 122) - 0.5, soft=1.5)
    g = torch.Generator().manual_seed(0)
    pred = (3 * torch.randn(200, 121, generator=g)).to(logits)
    # float64, from the numbers that came in
    mass = torch.softmax(pred.double(), -1).numpy()
    edges = likelihood.edges.double().numpy()
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        got = likelihood.decode(pred, point)
    assert got.dtype == torch.float32
    for row, value in zip(mass, got[:, 0].tolist(), strict=True):
        if point == "mean":
            expected = (row * (edges[1:] + edges[:-1]) / 2).sum()
        else:
            below, k = 0.0, 0
            while below + row[k] < 0.5:
                below, k = below + row[k], k + 1
            expected = edges[k] + (0.5 - below) / row[k] * (edges[k + 1] - edges[k])
        # 1e-3 years: float32 sums of 121 masses, over the mass of the median's bin
        assert value == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("dtype", LOW)
def test_classes_are_decoded_as_they_come(dtype):
    pred = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)).to(dtype)
    with torch.autocast("cpu", dtype=dtype):
        got = Categorical(7).decode(pred)
    assert torch.equal(got[:, 0], pred.double().argmax(-1))


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.split()[1] == "Flat"])
def test_every_decode(pair, dtype):
    """Under autocast as without it."""
    likelihood = make(pair, torch.float32).likelihood
    pred, _ = batch(pair, 6, torch.float32)
    with torch.autocast("cpu", dtype=dtype):
        got = likelihood.decode(pred)
    torch.testing.assert_close(got, likelihood.decode(pred), rtol=0, atol=0)
