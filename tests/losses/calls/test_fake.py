"""A GPU never waits for Python: a step of every pair on fake CUDA tensors, where a number that is
read raises, and so does a mix of devices. Forward only: torch's own backward does not run there."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from losses import WeightedLoss
from losses.balanced import SMALL
from tests.fake_gpu import move
from tests.losses.pairs import PAIRS, batch, learns, make


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [64, 5 * SMALL])
@pytest.mark.parametrize("pair", PAIRS)
def test_nothing_is_read(pair, rows, weighted, request):
    if rows > 64 and "Batch" in pair:
        rows //= request.getfixturevalue("small_limits")
    loss = make(pair, torch.float32, learns(pair))
    pred, target = batch(pair, 2, torch.float32)
    with FakeTensorMode(allow_non_fake_inputs=False):
        move(loss)
        x = torch.empty(rows, pred.shape[1], device="cuda", requires_grad=True)
        y = torch.empty(rows, target.shape[1], device="cuda")
        weight = torch.empty(rows, device="cuda") if weighted else None
        value = loss(x, y, weight)
    assert value.device.type == "cuda"
    assert value.shape == ()
    assert value.requires_grad


@pytest.mark.parametrize("error", ["mse", "l1", "huber", "focal_l1"])
def test_the_baselines_read_nothing_either(error):
    with FakeTensorMode():
        x, y, weight = (torch.empty(*shape, device="cuda") for shape in ((9, 2), (9, 2), (9,)))
        assert WeightedLoss(error)(x, y, weight).device.type == "cuda"


def test_a_read_would_be_seen():
    """The test's own test: reading a number does raise there."""
    with FakeTensorMode(), pytest.raises(Exception, match=r"item|data.dependent|local_scalar"):
        torch.empty(3, device="cuda").sum().item()
