"""Second derivatives, for every pair: gradients of gradients against finite differences, and
torch.func against the definition; a gradient penalty against the textbook's."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

from losses import BMC, BNI, GAI, Bins
from losses.fast import FEW
from tests.losses.pairs import D64, PAIRS, batch, definition, learns, make, mixture

# torch's own, when it first meets a forward derivative
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")
# 1e-8 throughout: the same mathematics in float64, in another order
CLOSE = {"rtol": 1e-8, "atol": 1e-8}


def calls(pair: str, rows: int):
    """The loss and its definition as functions of pred and the scale, and a point."""
    loss = make(pair, learn=learns(pair))
    pred, target = batch(pair, rows)
    weight = torch.linspace(0.5, 1.5, rows, dtype=D64)
    names = [name for name, _ in loss.named_parameters()]

    def fast(pred: Tensor, *scales: Tensor) -> Tensor:
        state = dict(zip(names, scales, strict=True))
        return functional_call(loss, state, (pred, target, weight))

    class Definition(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = loss

        def forward(self, pred: Tensor) -> Tensor:
            return definition(loss, pred, target, weight)

    module = Definition()

    def plain(pred: Tensor, *scales: Tensor) -> Tensor:
        state = {f"loss.{name}": scale for name, scale in zip(names, scales, strict=True)}
        return functional_call(module, state, (pred,))

    return fast, plain, [pred, *(p.detach().clone() for p in loss.parameters())]


def second(call, point: list[Tensor], directions: list[Tensor]) -> list[Tensor]:
    """A Hessian-vector product over pred and the scale, mixed terms included, by create_graph."""
    point = [x.clone().requires_grad_() for x in point]
    first = torch.autograd.grad(call(*point), point, create_graph=True)
    product = sum((a * b).sum() for a, b in zip(first, directions, strict=True))
    if not product.requires_grad:  # a flat prior's plain L1 has none
        return [torch.zeros_like(x) for x in point]
    zeros = torch.autograd.grad(product, point, allow_unused=True, materialize_grads=True)
    return list(zeros)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("rows", [5, FEW + 100, 3 * FEW])
def test_gradients_of_gradients(pair, rows, request):
    if rows > 5 and " Batch " in pair:
        rows //= request.getfixturevalue("small_limits")
    fast, plain, point = calls(pair, rows)
    g = torch.Generator().manual_seed(1)
    directions = [torch.randn(x.shape, generator=g, dtype=D64) for x in point]
    products = (second(call, point, directions) for call in (fast, plain))
    for ours, theirs in zip(*products, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize("pair", PAIRS)
def test_gradgradcheck(pair):
    """The unit is detached on purpose, so the scale is left out: with it, the first derivative is
    none of the value, but the second is one of the first, which is what is checked above."""
    fast, _, (pred, *scales) = calls(pair, 4)
    assert gradgradcheck(lambda p: fast(p, *scales), (pred.requires_grad_(),))


@pytest.mark.parametrize("pair", PAIRS)
def test_torch_func(pair):
    fast, plain, point = calls(pair, 4)
    every = tuple(range(len(point)))
    for transform in (hessian, lambda f, argnums: jacrev(jacrev(f, argnums), argnums)):
        ours, theirs = (transform(call, argnums=every)(*point) for call in (fast, plain))
        torch.testing.assert_close(ours, theirs, **CLOSE)
    for transform in (grad, jacfwd):
        (ours,), (theirs,) = (transform(call, argnums=(0,))(*point) for call in (fast, plain))
        torch.testing.assert_close(ours, theirs, **CLOSE)
    several = torch.stack([point[0], point[0] + 0.1])
    ours, theirs = (
        vmap(grad(call), (0, *[None] * len(point[1:])))(several, *point[1:])
        for call in (fast, plain)
    )
    torch.testing.assert_close(ours, theirs, **CLOSE)


def at(call, scales: list[Tensor], pred: Tensor) -> Tensor:
    return call(pred, *scales)


@pytest.mark.parametrize("vectorize", [False, True])
def test_autograd_functional(vectorize):
    for pair in ("Gaussian Mixture 1", "Gaussian Batch 3", "Gaussian Bins 1"):
        fast, plain, (pred, *scales) = calls(pair, 4)
        ours, theirs = (
            torch.autograd.functional.hessian(partial(at, call, scales), pred, vectorize=vectorize)
            for call in (fast, plain)
        )
        torch.testing.assert_close(ours, theirs, **CLOSE)
        assert ours.abs().max() > 0.01


def test_forward_mode():
    fast, plain, (pred, *scales) = calls("Gaussian Bins 1", 4)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(pred, torch.ones_like(pred))
        ours, theirs = (
            torch.autograd.forward_ad.unpack_dual(call(dual, *scales)).tangent
            for call in (fast, plain)
        )
    torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize("rows", [32, 2 * FEW])
@pytest.mark.parametrize("name", ["gai", "bni", "bmc"])
def test_gradient_penalty(name, rows):
    """|d loss / d input|^2 through a network, by a textbook's formula on the side."""
    rows = 32 if name == "bmc" else rows
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    ).double()
    x, y = torch.randn(rows, 3, dtype=D64), torch.randn(rows, 1, dtype=D64)
    s = torch.tensor(0.8, dtype=D64)
    bins = Bins(torch.linspace(-3, 3, 7, dtype=D64), torch.arange(1, 8, dtype=D64))
    loss = {"gai": GAI(mixture(1, D64), s), "bni": BNI(bins, s), "bmc": BMC(s)}[name]

    def textbook(pred: Tensor, target: Tensor) -> Tensor:
        c, w, v = target[:, 0], torch.ones_like(target[:, 0]), 0.0
        if name == "bni":
            c, w = bins.centers, bins.weights
        if name == "gai":
            c, w, v = loss.prior.means[:, 0], loss.prior.weights, loss.prior.covariances[:, 0, 0]
        parts = torch.distributions.Normal(c, (v + s**2) ** 0.5).log_prob(pred) + w.log()
        own = torch.distributions.Normal(pred, s).log_prob(target)[:, 0]
        return 2 * s**2 * (parts.logsumexp(-1) - own).mean()

    results = []
    for call in (loss, textbook):
        inputs = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(call(net(inputs), y), inputs, create_graph=True)
        penalty = (rows * slope).square().sum(-1).mean()
        results.append(torch.autograd.grad(penalty, list(net.parameters())[:-1]))
    for ours, theirs in zip(*results, strict=True):
        assert theirs.abs().max() > 1e-3
        torch.testing.assert_close(ours, theirs, **CLOSE)


def twice(call, pred: Tensor, target: Tensor) -> None:
    (slope,) = torch.autograd.grad(call(pred, target), pred, create_graph=True)
    torch.autograd.grad(slope.sum(), pred)


@pytest.mark.parametrize("rows", [6, 3 * FEW])
def test_compiled_second_derivatives_are_right_or_raise(rows):
    loss = make("Gaussian Bins 1", learn=True)
    pred, target = batch("Gaussian Bins 1", rows)
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    pred.requires_grad_()
    with pytest.raises(RuntimeError, match=r"double backward|create_graph"):
        twice(compiled, pred, target)
    direction = torch.ones_like(pred)

    def curvature(pred: Tensor) -> Tensor:
        return torch.func.jvp(grad(lambda p: loss(p, target)), (pred,), (direction,))[1]

    torch.compiler.reset()
    inside = torch.compile(curvature, backend="aot_eager", fullgraph=True)(pred.detach())
    torch.testing.assert_close(inside, curvature(pred.detach()), **CLOSE)
    assert inside.abs().max() > 0
