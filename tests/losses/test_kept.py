"""What a fixed loss keeps from step to step must never be older than the loss itself."""

import copy
import io

import pytest
import torch

from losses import BNI, GAI, BalancedLoss, Bins, GaussianMixture
from losses.fused import Kept
from tests.losses.pairs import D64, mixture

LOSSES = {
    "bins": lambda: BNI(Bins(torch.arange(5.0), torch.arange(1.0, 6)), 1.0),
    "mixture": lambda: GAI(mixture(1, torch.float32), 1.0),
    "mixture in 3 dimensions": lambda: GAI(mixture(3, torch.float32), 1.0),
}


def value_and_gradient(loss: BalancedLoss, dtype=torch.float32) -> tuple[torch.Tensor, ...]:
    dims = loss.prior.means.shape[-1] if isinstance(loss.prior, GaussianMixture) else 1
    g = torch.Generator().manual_seed(0)
    pred, target = torch.randn(2, 16, dims, generator=g).to(dtype)
    value = loss(pred.requires_grad_(), target)
    return value.detach(), *torch.autograd.grad(value, pred)


def oracle(loss: BalancedLoss, dtype=torch.float32) -> tuple[torch.Tensor, ...]:
    """The same without anything kept."""
    fresh = BalancedLoss(loss.likelihood, loss.prior, loss.strength)
    fresh._fused = lambda *_: None  # pyright: ignore[reportAttributeAccessIssue]
    return value_and_gradient(fresh, dtype)


def assert_right(loss: BalancedLoss, dtype=torch.float32) -> None:
    for ours, theirs in zip(value_and_gradient(loss, dtype), oracle(loss, dtype), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_follows_sigma_and_prior(name):
    loss = LOSSES[name]()
    assert_right(loss)
    loss.likelihood.sigma.fill_(2.0)
    assert_right(loss)
    with torch.no_grad():
        loss.prior.weights.copy_(loss.prior.weights.flip(0))
    assert_right(loss)
    loss.load_state_dict(LOSSES[name]().state_dict())
    assert_right(loss)
    assert_right(loss.double(), D64)
    with torch.inference_mode():
        loss(torch.zeros(9000, 1), torch.zeros(9000, 1)) if "3" not in name else None
    assert_right(loss, D64)


@pytest.mark.parametrize("name", LOSSES)
def test_a_used_loss_can_be_copied_and_written(name):
    loss = LOSSES[name]()
    value_and_gradient(loss)
    twin = copy.deepcopy(loss)
    twin.likelihood.sigma.fill_(3.0)
    assert_right(twin)
    torch.save(loss, io.BytesIO())


def test_other_dimensions_are_still_refused():
    loss = LOSSES["mixture in 3 dimensions"]()
    value_and_gradient(loss)
    with pytest.raises(ValueError, match="the mixture has 3 dimensions, the labels have 2"):
        loss(torch.zeros(4, 2), torch.zeros(4, 2))


@pytest.mark.parametrize("name", ["bins", "mixture"])
def test_curves_follow_the_predictions_and_sigma(name):
    """Very many rows read a kept curve, which must be redrawn when they leave it."""
    loss, fresh = LOSSES[name](), LOSSES[name]()
    g = torch.Generator().manual_seed(0)
    target = 4 * torch.rand(9000, 1, generator=g)
    for low, high, sigma in ((0, 4, 1.0), (0.1, 4.1, 1.0), (-3, 8, 1.0), (1, 2, 1.0), (1, 2, 0.5)):
        pred = low + (high - low) * torch.rand(9000, 1, generator=g)
        for each in (loss, fresh):
            each.likelihood.sigma.fill_(sigma)
        fresh.kept = Kept()
        values = [each(pred.clone().requires_grad_(), target) for each in (loss, fresh)]
        assert values[0].item() == pytest.approx(values[1].item(), rel=1e-5)
        rows = BalancedLoss(loss.likelihood, loss.prior).rows(pred.double(), target.double())
        exact = 2 * sigma**2 * rows.mean().item()
        assert values[0].item() == pytest.approx(exact, rel=2e-5)
