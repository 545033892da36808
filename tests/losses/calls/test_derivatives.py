"""First and second derivatives for every pair: finite differences in float64, automatic
differentiation in several modes, and fast paths against the definition."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacrev

from losses import BalancedLoss
from losses.balanced import SMALL
from tests.losses.pairs import D64, PAIRS, assert_close, batch, definition, evaluate, learns, make

# torch's own, when it first meets a forward derivative
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")
CLOSE = 1e-8  # the same mathematics in float64, in another order
FAST = [p for p in PAIRS if p.startswith(("Gaussian", "Laplace")) and " Flat " not in p]


def function(loss: BalancedLoss, target: Tensor) -> Callable[..., Tensor]:
    """Return the loss as a function of pred, of its scale if that is learned, and of weights."""
    names = [name for name, _ in loss.named_parameters()]

    def call(pred: Tensor, *others: Tensor) -> Tensor:
        scales = dict(zip(names, others, strict=False))
        return functional_call(loss, scales, (pred, target, *others[len(names) :]))

    return call


@pytest.mark.parametrize(("weighted", "strength"), [(False, 1.0), (True, 0.4)])
@pytest.mark.parametrize("pair", PAIRS)
def test_gradcheck(pair, weighted, strength):
    """To predictions, scale and weights. `full_nll`: without the unit, which is detached on purpose
    and makes the product no derivative; Flat's constant is detached, too."""
    free = " Flat " not in pair
    loss = make(pair, learn=learns(pair) and free, strength=strength, full_nll=free)
    pred, target = batch(pair, 5)
    inputs = [pred, *loss.parameters(), *[torch.linspace(0.5, 1.5, 5, dtype=D64)] * weighted]
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    assert gradcheck(function(loss, target), leaves)


def second(call: Callable[[Tensor], Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
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
    loss, (pred, target) = make(pair, learn=True), batch(pair, count)
    weight = torch.linspace(0.5, 1.5, count, dtype=D64)
    inputs = [pred.requires_grad_(), *loss.parameters()]
    ours = second(lambda p: loss(p, target, weight), inputs)
    assert_close(ours, second(lambda p: definition(loss, p, target, weight), inputs), CLOSE)


@pytest.mark.parametrize("pair", PAIRS)
def test_small_batches(pair):
    """torch.func and forward mode agree with autograd, and autograd with finite differences."""
    loss, (pred, target) = make(pair, learn=learns(pair)), batch(pair, 4)
    call, point = function(loss, target), (pred, *(p.detach() for p in loss.parameters()))
    # The unit is detached, so a gradient to the scale is no derivative of the value: pred only.
    assert gradgradcheck(lambda p: call(p, *point[1:]), (pred.clone().requires_grad_(),))
    expected, every = torch.autograd.functional.hessian(call, point), tuple(range(len(point)))
    assert_close(hessian(call, argnums=every)(*point), expected, CLOSE)
    assert_close(jacrev(jacrev(call, every), every)(*point), expected, CLOSE)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(pred, torch.ones_like(pred))
        tangent = forward_ad.unpack_dual(call(dual, *point[1:])).tangent
    assert_close(tangent, evaluate(loss, pred, target)[1].sum(), CLOSE)


def test_compiled_second_derivatives_are_right_or_raise():
    loss, (pred, target) = make("Gaussian Bins 1", learn=True), batch("Gaussian Bins 1", 3 * SMALL)
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    with pytest.raises(RuntimeError, match=r"double backward|create_graph"):
        second(lambda p: compiled(p, target), [pred.clone().requires_grad_()])

    def curvature(pred: Tensor) -> Tensor:
        slope = grad(lambda p: loss(p, target))
        return torch.func.jvp(slope, (pred,), (torch.ones_like(pred),))[1]

    torch.compiler.reset()
    inside = torch.compile(curvature, backend="aot_eager", fullgraph=True)(pred)
    assert_close(inside, curvature(pred), CLOSE)
    assert inside.abs().max() > 0
