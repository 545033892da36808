"""First and second derivatives for every pair: finite differences in float64, automatic
differentiation in several modes, and fast paths against the definition."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacrev
from torch.nn import functional

from losses.balanced import SMALL
from tests.losses.pairs import (
    D64,
    PAIRS,
    assert_close,
    batch,
    definition,
    evaluate,
    learns,
    make,
)

# torch's own, when it first meets a forward derivative
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")
CLOSE = 1e-8  # the same mathematics in float64, in another order
FAST = [p for p in PAIRS if p.startswith(("Gaussian", "Laplace")) and " Flat " not in p]


def unscaled(loss, pred, target, weight, scale=None):
    """The loss as a function of pred and its scale, divided by the unit: the unit is detached on
    purpose, so that the product is no derivative of anything."""
    if scale is None:
        return loss(pred, target, weight) / loss.likelihood.unit
    value = functional_call(
        loss, {f"likelihood.{loss.likelihood.symbol}": scale}, (pred, target, weight)
    )
    s = scale.detach()
    unit = {"Gaussian": 2 * (s * s).mean(), "Laplace": s.mean(), "Huber": (s * s).mean()}
    return value / unit[type(loss.likelihood).__name__]


@pytest.mark.parametrize(("weighted", "strength"), [(False, 1.0), (True, 0.4)])
@pytest.mark.parametrize("pair", PAIRS)
def test_gradcheck(pair, weighted, strength):
    learn = learns(pair) and " Flat " not in pair  # Flat's constant is detached on purpose
    loss = make(pair, learn=learn, strength=strength)
    pred, target = batch(pair, 5)
    weight = torch.linspace(0.5, 1.5, 5, dtype=D64) if weighted else None
    scale = [value.detach().clone().requires_grad_() for value in loss.parameters()]
    assert gradcheck(
        lambda p, *s: unscaled(loss, p, target, weight, *s), (pred.requires_grad_(), *scale)
    )


def test_flat_scale_has_the_gradient_of_a_likelihood():
    """The constant that a flat prior takes away carries no gradient, so that a learned sigma
    still finds the residuals' spread."""
    pred, target = batch("Gaussian Flat 3", 6)
    loss = make("Gaussian Flat 3", learn=True)
    loss(pred, target).backward()
    sigma = torch.tensor(0.8, dtype=D64, requires_grad=True)
    nll = functional.gaussian_nll_loss(pred, target, sigma.square().expand(6, 3), reduction="none")
    (2 * 0.8**2 * nll.sum(-1).mean()).backward()
    # 1e-12: float64 rounding
    torch.testing.assert_close(loss.likelihood.sigma.grad, sigma.grad, rtol=1e-12, atol=1e-12)


def second(call, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Return a Hessian-vector product over pred and the scale, mixed terms included."""
    g = torch.Generator().manual_seed(1)
    directions = [torch.randn(x.shape, generator=g, dtype=D64) for x in inputs]
    first = torch.autograd.grad(call(inputs[0]), inputs, create_graph=True)
    product = sum((a * b).sum() for a, b in zip(first, directions, strict=True))
    return torch.autograd.grad(product, inputs)


@pytest.mark.parametrize("pair", FAST)
@pytest.mark.parametrize("count", [SMALL + 100, 3 * SMALL])
def test_fast_paths(pair, count, request):
    if " Batch " in pair:
        count //= request.getfixturevalue("small_limits")
    loss = make(pair, learn=True)
    pred, target = batch(pair, count)
    weight = torch.linspace(0.5, 1.5, count, dtype=D64)
    inputs = [pred.requires_grad_(), *loss.parameters()]
    ours = second(lambda p: loss(p, target, weight), inputs)
    assert_close(ours, second(lambda p: definition(loss, p, target, weight), inputs), CLOSE)


@pytest.mark.parametrize("pair", PAIRS)
def test_small_batches(pair):
    """torch.func and forward mode agree with autograd, and autograd with finite differences."""
    loss = make(pair, learn=learns(pair))
    pred, target = batch(pair, 4)
    names = [name for name, _ in loss.named_parameters()]
    point = (pred, *(p.detach().clone() for p in loss.parameters()))

    def call(pred: Tensor, *scales: Tensor) -> Tensor:
        return functional_call(loss, dict(zip(names, scales, strict=True)), (pred, target))

    # The unit is detached, so a gradient to the scale is no derivative of the value: pred only.
    assert gradgradcheck(lambda p: call(p, *point[1:]), (pred.clone().requires_grad_(),))
    reference = partial(torch.autograd.functional.hessian, call, point)
    expected, every = reference(), tuple(range(len(point)))
    assert_close(reference(vectorize=True), expected, CLOSE)
    assert_close(hessian(call, argnums=every)(*point), expected, CLOSE)
    assert_close(jacrev(jacrev(call, every), every)(*point), expected, CLOSE)
    slope = evaluate(loss, pred, target)[1]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(pred, torch.ones_like(pred))
        tangent = torch.autograd.forward_ad.unpack_dual(call(dual, *point[1:])).tangent
    assert_close(tangent, slope.sum(), CLOSE)


@pytest.mark.parametrize("count", [6, 3 * SMALL])
def test_compiled_second_derivatives_are_right_or_raise(count):
    loss = make("Gaussian Bins 1", learn=True)
    pred, target = batch("Gaussian Bins 1", count)
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    leaf = pred.clone().requires_grad_()
    with pytest.raises(RuntimeError, match=r"double backward|create_graph"):
        second(lambda p: compiled(p, target), [leaf])

    def curvature(pred: Tensor) -> Tensor:
        slope = grad(lambda p: loss(p, target))
        return torch.func.jvp(slope, (pred,), (torch.ones_like(pred),))[1]

    torch.compiler.reset()
    inside = torch.compile(curvature, backend="aot_eager", fullgraph=True)(pred)
    assert_close(inside, curvature(pred), CLOSE)
    assert inside.abs().max() > 0
