"""The fused step against the plain steps of Theorem 1 (`BalancedLoss.rows`), under autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from losses import BMC, BNI, GAI, Bins
from tests.losses.pairs import D64, EDGES, mixture

FUSED = ["GAI 1", "GAI 4", "BMC 1", "BMC 4", "BNI 1"]


def build(case: str, sigma: torch.Tensor, learn: bool, strength: float):
    name, dims = case.split()
    makers = {
        "GAI": lambda: GAI(mixture(int(dims), D64), sigma, learn, strength=strength),
        "BMC": lambda: BMC(sigma, learn, strength=strength),
        "BNI": lambda: BNI(Bins(EDGES, EDGES.abs() + 0.1), sigma, learn, strength=strength),
    }
    return makers[name]()


def compare(loss, pred, target, weight):
    pred = pred.clone().requires_grad_()
    inputs = [pred, *loss.parameters()]
    assert loss._fused(pred, target, weight) is not None
    fused = loss(pred, target, weight)
    rows = loss.rows(pred, target)
    share = torch.full_like(rows, 1 / len(rows)) if weight is None else weight / weight.sum()
    plain = loss.likelihood.unit * (share * rows).sum()
    # 1e-9: float64, with the cancellation of |p|^2 + |y|^2 - 2 p.y in several dimensions
    torch.testing.assert_close(fused, plain, rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(
        torch.autograd.grad(fused, inputs), torch.autograd.grad(plain, inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strength", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("per_dimension", [False, True])
@pytest.mark.parametrize("case", FUSED)
def test_equals_plain_steps(case, per_dimension, learn, strength, weighted):
    dims = int(case.split()[1])
    if case.startswith("GAI") and per_dimension:
        return  # has plain steps only
    g = torch.Generator().manual_seed(1)
    pred, target = 2 * torch.randn(2, 30, dims, generator=g, dtype=D64)
    sigma = torch.tensor(0.7, dtype=D64)
    sigma = torch.linspace(0.5, 1.4, dims, dtype=D64) if per_dimension else sigma
    weight = torch.rand(30, generator=g, dtype=D64) if weighted else None
    compare(build(case, sigma, learn, strength), pred, target, weight)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(FUSED),
    st.integers(2, 9),
    st.floats(0.05, 30),
    st.floats(0, 1.5),
    st.integers(0, 2**20),
)
def test_any_shape_and_value(case, rows, sigma, strength, seed):
    dims = int(case.split()[1])
    g = torch.Generator().manual_seed(seed)
    pred, target = 5 * torch.randn(2, rows, dims, generator=g, dtype=D64)
    compare(build(case, torch.tensor(sigma, dtype=D64), True, strength), pred, target, None)


def test_a_float32_sigma_serves_float64_predictions():
    loss = BMC(0.7, learn_sigma=True)
    pred, target = torch.randn(2, 20, 1, dtype=D64)
    loss(pred.requires_grad_(), target).backward()
    assert pred.grad.dtype == D64
    assert loss.likelihood.sigma.grad.dtype == torch.float32


def test_a_second_derivative_is_refused():
    loss = BMC(1.0)
    pred, target = torch.randn(2, 5, 1, dtype=D64)
    pred.requires_grad_()
    (slope,) = torch.autograd.grad(loss(pred, target), pred, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        slope.sum().backward()
