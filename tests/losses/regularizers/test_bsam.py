"""BSAM: the gradient is that of the moved parameters, and the parameters come back."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from losses.regularizers import BSAM

A = torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)


def closure(optimizer, loss: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return call


def steps(rho: float | None, count: int = 3) -> torch.Tensor:
    """Minimise w A w / 2 by gradient descent with momentum; None: without BSAM."""
    w = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    optimizer = sgd if rho is None else BSAM(sgd, rho)
    call = closure(optimizer, lambda: w @ A @ w / 2)
    losses = [optimizer.step(call) for _ in range(count)]
    assert losses[0].item() == pytest.approx(3.5)  # before the step
    return w.detach()


def test_steps():
    assert torch.equal(steps(0.0), steps(None))
    w = torch.tensor([1.0, -2.0], dtype=torch.float64)
    gradient = A @ w
    expected = w - 0.1 * A @ (w + 0.2 * gradient / gradient.norm())
    torch.testing.assert_close(steps(0.2, count=1), expected, rtol=1e-10, atol=0)


def test_state_is_that_of_the_optimizer():
    w = torch.ones(2, requires_grad=True)
    bsam = BSAM(torch.optim.Adam([w]))
    bsam.step(closure(bsam, lambda: w.square().sum()))
    other = BSAM(torch.optim.Adam([torch.ones(2, requires_grad=True)]))
    other.load_state_dict(bsam.state_dict())
    assert other.state_dict()["state"][0]["step"] == 1
    with pytest.raises(ValueError, match="rho must be"):
        BSAM(torch.optim.Adam([w]), rho=-1.0)


def test_a_failed_step_leaves_the_weights():
    w = torch.ones(2, requires_grad=True)
    bsam, calls = BSAM(torch.optim.SGD([w], lr=0.1)), []

    def loss() -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("out of memory")
        return w.square().sum()

    with pytest.raises(RuntimeError, match="out of memory"):
        bsam.step(closure(bsam, loss))
    assert torch.equal(w, torch.ones(2))
    w.grad = None
    with pytest.raises(ValueError, match=r"must call loss\.backward"):
        bsam.step(lambda: w.sum())


def test_steps_of_the_released_code():
    """manmanjun/BSAM_for_Imbalanced_Regression, agedb, commit ae9a273: five weighted L1 steps."""
    rng = np.random.default_rng(1)
    x, y, weight = (
        torch.from_numpy(one)
        for one in (rng.normal(size=(16, 3)), 3 * rng.normal(size=(16, 1)), rng.random((16, 1)))
    )
    model = torch.nn.Linear(3, 1, dtype=torch.float64)
    torch.nn.init.constant_(model.weight, 0.1)
    torch.nn.init.zeros_(model.bias)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    bsam = BSAM(sgd, rho=0.2)
    for _ in range(5):
        bsam.step(closure(bsam, lambda: (weight * (model(x) - y).abs()).mean()))
    found = torch.cat([model.weight.flatten(), model.bias])
    expected = torch.tensor(
        [-0.25554056057364155, -0.1865827815532215, -0.0632902600568926, -0.005958547722051147],
        dtype=torch.float64,
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
