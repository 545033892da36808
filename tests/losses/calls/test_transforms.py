"""torch.compile and torch.vmap against plain calls, for every pair."""

import shutil

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from losses import BalancedLoss, Bins, Gaussian, Huber, Laplace
from tests.losses.pairs import PAIRS, assert_close, batch, evaluate, generator, learns, make

RUNS = 3
CLOSE = 1e-9  # the same mathematics in float64, in another order


@pytest.mark.parametrize("pair", PAIRS)
def test_compile(pair):
    """Traced without a graph break, forward and backward, and run without a C compiler."""
    loss, given = make(pair, learn=learns(pair)), batch(pair, 6)
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    assert_close(evaluate(loss, *given, call=compiled), evaluate(loss, *given), CLOSE)


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore")  # inductor's own
def test_inductor():
    loss, given = make("Gaussian Batch 1", learn=True), batch("Gaussian Batch 1", 6)
    torch.compiler.reset()
    assert_close(evaluate(loss, *given, call=torch.compile(loss)), evaluate(loss, *given), CLOSE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_vmap_equals_a_loop(pair, weighted):
    """Several runs at once, each with its predictions, labels and scale."""
    losses = [make(pair, learn=learns(pair)) for _ in range(RUNS)]
    with torch.no_grad():
        for k, loss in enumerate(losses):
            for p in loss.parameters():
                p.mul_(1 + 0.2 * k)
    batches = [batch(pair, 6, seed=k) for k in range(RUNS)]
    preds, targets = (torch.stack(part) for part in zip(*batches, strict=True))
    weight = torch.linspace(0.2, 1, 6, dtype=preds.dtype) if weighted else None
    parameters, buffers = stack_module_state(losses)

    def one(parameters, buffers, pred, target):
        return functional_call(losses[0], (parameters, buffers), (pred, target, weight))

    values = vmap(one)(parameters, buffers, preds, targets)
    scales, slopes = vmap(grad(one, argnums=(0, 2)))(parameters, buffers, preds, targets)
    for k, loss in enumerate(losses):
        ours = [values[k], slopes[k], *(scales[name][k] for name, _ in loss.named_parameters())]
        assert_close(ours, evaluate(loss, preds[k], targets[k], weight), CLOSE)


@pytest.mark.parametrize("count", [6, 1100])
@pytest.mark.parametrize("kind", [Gaussian, Laplace, Huber])
def test_functional_call_with_a_fixed_scale(kind, count):
    loss = BalancedLoss(kind(1.0), Bins([-1.0, 0, 1], [1.0, 2, 3]))
    pred, target = torch.randn(2, count, 1, generator=generator())
    name = f"likelihood.{loss.likelihood.symbol}"
    scale = torch.tensor(0.5, requires_grad=True)
    value = functional_call(loss, {name: scale}, (pred, target))
    assert_close(value, BalancedLoss(kind(0.5), loss.prior)(pred, target), 1e-6)
    slope = grad(lambda s: functional_call(loss, {name: s}, (pred, target)))(scale.detach())
    assert_close(torch.autograd.grad(value, scale)[0], slope, 1e-5)


@pytest.mark.parametrize(
    "pair",
    [
        "Gaussian Batch 1",
        "Gaussian Bins 1",
        "Gaussian Mixture 3",
        "Laplace Batch 3",
        "Laplace Mixture 1",
        "Histogram Bins 1",
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_export_with_a_dynamic_batch(pair, weighted):
    loss = make(pair, torch.float32)
    size = torch.export.Dim("size", min=2, max=100_000)
    given = [*batch(pair, 6, torch.float32)] + [torch.rand(6)] * weighted
    shapes = {"pred": {0: size}, "target": {0: size}} | ({"weight": {0: size}} if weighted else {})
    exported = torch.export.export(loss, tuple(given), dynamic_shapes=shapes).module()
    for count in (3, 2500 if "Batch" not in pair else 300):
        given = [*batch(pair, count, torch.float32, seed=count)] + [torch.rand(count)] * weighted
        assert_close(exported(*given), loss(*given), 1e-5)
