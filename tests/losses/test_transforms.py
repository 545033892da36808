"""torch.compile and torch.func against plain calls, for every pair."""

import shutil

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from tests.losses.pairs import PAIRS, batch, learns, make

RUNS = 3


# 1e-9 throughout: the same mathematics in float64, in another order.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def value_and_gradients(call, loss, pred, target):
    pred = pred.clone().requires_grad_()
    value = call(pred, target)
    gradients = torch.autograd.grad(value, [pred, *loss.parameters()], allow_unused=True)
    return [value.detach(), *gradients]


@pytest.mark.parametrize("pair", PAIRS)
def test_compile(pair):
    """Traced whole, forward and backward, and run without a C compiler."""
    loss = make(pair, learn=learns(pair))
    pred, target = batch(pair, 6)
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    ours = value_and_gradients(compiled, loss, pred, target)
    for a, b in zip(ours, value_and_gradients(loss, loss, pred, target), strict=True):
        torch.testing.assert_close(a, b, **CLOSE)


if shutil.which("g++"):

    @pytest.mark.filterwarnings("ignore")  # inductor's own
    def test_inductor():
        loss = make("Gaussian Batch 1", learn=True)
        pred, target = batch("Gaussian Batch 1", 6)
        torch.compiler.reset()
        ours = value_and_gradients(torch.compile(loss), loss, pred, target)
        for a, b in zip(ours, value_and_gradients(loss, loss, pred, target), strict=True):
            torch.testing.assert_close(a, b, **CLOSE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_vmap_equals_a_loop(pair, weighted):
    """Several runs at once: their own predictions, labels and scales."""
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
    slopes = vmap(grad(one, argnums=(0, 2)))(parameters, buffers, preds, targets)
    for k, loss in enumerate(losses):
        pred = preds[k].clone().requires_grad_()
        value = loss(pred, targets[k], weight)
        value.backward()
        torch.testing.assert_close(values[k], value, **CLOSE)
        torch.testing.assert_close(slopes[1][k], pred.grad, **CLOSE)
        for name, p in loss.named_parameters():
            torch.testing.assert_close(slopes[0][name][k], p.grad, **CLOSE)
