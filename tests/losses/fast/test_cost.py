"""What a step costs. Times vary, so the numbers that torch makes are counted: of all results of all
of its operations, forward and backward.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from losses import BNI, GAI, BalancedLoss, Bins, GaussianMixture
from losses.fast.fused import FEW_ROWS

LOSSES = {
    "BNI": lambda learn: BNI(Bins(torch.arange(0.05, 10, 0.1), torch.ones(100)), 1.0, learn),
    "GAI": lambda learn: GAI(
        GaussianMixture(
            torch.ones(16), torch.linspace(0.5, 9.5, 16)[:, None], torch.ones(16, 1, 1)
        ),
        1.0,
        learn,
    ),
}


class Count(TorchDispatchMode):
    """The numbers made."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.total += sum(x.numel() for x in tree_leaves(result) if torch.is_tensor(x))
        return result


def cost(loss: BalancedLoss, rows: int, outlier: float | None = None) -> int:
    """Of the second step: what can be kept is."""
    g = torch.Generator().manual_seed(0)
    pred, target = 0.7 + 9.3 * torch.rand(2, rows, 1, generator=g)
    if outlier is not None:
        pred[rows // 2] = outlier
    pred.requires_grad_()
    loss(pred, target).backward()
    with Count() as count:
        loss(pred, target).backward()
    return count.total


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_a_step_does_not_jump_where_tables_begin(name, learn):
    few, more = (cost(LOSSES[name](learn), rows) for rows in (FEW_ROWS, FEW_ROWS + 1))
    assert more <= 1.5 * few


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_one_outlier_does_not_cost_the_table(name, learn):
    plain, far = (cost(LOSSES[name](learn), 40_000, outlier) for outlier in (None, 1e5))
    assert far <= 1.5 * plain


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_what_is_compiled_reads_the_table(name, learn):
    """Every row with every component, (N, K), is made nowhere in the graph."""
    torch.compiler.reset()
    sizes, rows = [], FEW_ROWS + 1

    def record(graph, inputs):
        values = [node.meta.get("example_value") for node in graph.graph.nodes]
        sizes.extend(x.numel() for v in values for x in tree_leaves(v) if torch.is_tensor(x))
        return graph.forward

    loss = LOSSES[name](learn)
    pred, target = (0.7 + 9.3 * torch.rand(2, rows, 1)).unbind()
    compiled = torch.compile(loss, backend=record, fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(pred.requires_grad_(), target), loss(pred, target))
    assert max(sizes) == rows
