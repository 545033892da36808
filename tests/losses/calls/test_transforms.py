"""torch.compile and torch.vmap against plain calls, for every pair."""

import shutil

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from tests.losses.pairs import PAIRS, assert_close, batch, evaluate, learns, make

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
