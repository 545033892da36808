"""What is kept from step to step must never be older than the loss itself."""

import copy
import io

import pytest
import torch

from losses import BNI, GAI, BalancedLoss, Bins, GaussianMixture
from losses.fast.fused import FEW_ROWS
from losses.fast.recent import recent
from tests.losses.pairs import D64, mixture

ROWS = 4 * FEW_ROWS
LOSSES = {
    "bins": lambda: BNI(Bins(torch.arange(5.0), torch.arange(1.0, 6)), 1.0),
    "mixture": lambda: GAI(mixture(1, torch.float32), 1.0),
    "mixture in 3 dimensions": lambda: GAI(mixture(3, torch.float32), 1.0),
    "learned": lambda: GAI(mixture(3, torch.float32), 1.0, learn_sigma=True),
    "large": lambda: GAI(mixture(30, torch.float32, components=20), 1.0),
}


def value_and_gradient(loss: BalancedLoss, dtype=torch.float32, plain=False, rows: int = ROWS):
    dims = loss.prior.means.shape[-1] if isinstance(loss.prior, GaussianMixture) else 1
    g = torch.Generator().manual_seed(0)
    pred, target = torch.randn(2, rows if dims == 1 else 16, dims, generator=g).to(dtype)
    pred.requires_grad_()
    value = loss.mean(loss.rows(pred, target), None) if plain else loss(pred, target)
    return value.detach(), *torch.autograd.grad(value, pred)


def assert_right(loss: BalancedLoss, dtype=torch.float32) -> None:
    """With many rows, whose table is kept, and with few, where it is the sum over the labels."""
    for rows in (ROWS, 16):
        ours, theirs = (value_and_gradient(loss, dtype, plain, rows) for plain in (False, True))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * b.abs().max().item())


def set_data(tensor, value):
    tensor.data = value


EDITS = {
    "fill": lambda loss: loss.likelihood.sigma.detach().fill_(2.0),
    "data.fill": lambda loss: loss.likelihood.sigma.data.fill_(3.0),
    "data=": lambda loss: set_data(loss.prior.weights, loss.prior.weights.flip(0)),
    "copy": lambda loss: loss.prior.weights.copy_(loss.prior.weights.flip(0)),
    "a NumPy view": lambda loss: loss.prior.weights.numpy()[:1].fill(0.9),
    "a NumPy view of sigma": lambda loss: loss.likelihood.sigma.detach().numpy().fill(1.7),
    "load": lambda loss: loss.load_state_dict({k: v * 1.3 for k, v in loss.state_dict().items()}),
}
MIXTURE_EDITS = {
    "covariances": lambda loss: loss.prior.covariances.mul_(2),
    "covariances.data": lambda loss: loss.prior.covariances.data.mul_(2),
    "covariances, NumPy": lambda loss: loss.prior.covariances.numpy().__imul__(2),
    "one number": lambda loss: loss.prior.covariances.data[0].add_(
        torch.eye(loss.prior.covariances.shape[-1]) * 0.5
    ),
    "means": lambda loss: loss.prior.means.data.add_(0.5),
}


@pytest.mark.parametrize("edit", [*EDITS, *MIXTURE_EDITS])
@pytest.mark.parametrize("name", LOSSES)
def test_follows_every_edit(name, edit):
    loss = LOSSES[name]()
    assert_right(loss)
    if edit in MIXTURE_EDITS and name == "bins":
        return
    with torch.no_grad():
        {**EDITS, **MIXTURE_EDITS}[edit](loss)
    assert_right(loss)


@pytest.mark.parametrize("name", LOSSES)
def test_follows_other_precisions_and_modes(name):
    loss = LOSSES[name]()
    assert_right(loss)
    with torch.inference_mode():
        loss.likelihood.sigma.detach().mul_(1.1)
        value_and_gradient_free = loss(*torch.zeros(2, 20_000, loss_dims(loss)))
    assert value_and_gradient_free.isfinite()
    assert_right(loss)
    assert_right(loss.double(), D64)


def loss_dims(loss: BalancedLoss) -> int:
    return loss.prior.means.shape[-1] if isinstance(loss.prior, GaussianMixture) else 1


@pytest.mark.parametrize("name", LOSSES)
def test_a_used_loss_can_be_copied_and_written(name):
    loss = LOSSES[name]()
    value_and_gradient(loss)
    twin = copy.deepcopy(loss)
    twin.likelihood.sigma.data.fill_(3.0)
    assert_right(twin)
    torch.save(loss, io.BytesIO())


def test_other_dimensions_are_still_refused():
    loss = LOSSES["mixture in 3 dimensions"]()
    value_and_gradient(loss)
    with pytest.raises(ValueError, match="the mixture has 3 dimensions, the labels have 2"):
        loss(torch.zeros(4, 2), torch.zeros(4, 2))


def test_large_tensors_are_told_apart_by_every_number():
    g = torch.Generator().manual_seed(0)
    first = torch.randn(512, 64, generator=g)
    assert recent((first,), ("test",), lambda: 1) == 1
    assert recent((first.clone(),), ("test",), lambda: 2) == 1
    for k in range(20):
        other = first.clone()
        row, column = torch.randint(64, (2,), generator=g).tolist()
        other[row, column] = other[row, column].nextafter(torch.tensor(9.0))
        assert recent((other,), ("test",), lambda k=k: 10 + k) == 10 + k
    for k, other in enumerate((first.flip(0), first.flip(1), first.roll(1, 0))):
        assert recent((other,), ("test",), lambda k=k: 40 + k) == 40 + k


REORDERED = {  # the same numbers at other places, so that no sum over them can tell
    "components": lambda cov: cov.flip(0),
    "dimensions": lambda cov: cov.flip(1).flip(2),
    "within rows": lambda cov: cov.roll(1, 1).roll(1, 2),
}


@pytest.mark.parametrize("order", REORDERED)
def test_follows_covariances_that_are_reordered(order):
    loss = LOSSES["large"]()
    assert_right(loss)
    with torch.no_grad():
        loss.prior.covariances.data.copy_(REORDERED[order](loss.prior.covariances).clone())
    assert_right(loss)


@pytest.mark.parametrize("rows", [16, ROWS])
@pytest.mark.parametrize("name", ["bins", "mixture"])
def test_numbers_that_another_loss_had_before_it_was_edited(name, rows):
    """What was made of them must not have changed with that loss."""
    first, second = LOSSES[name](), LOSSES[name]()
    pred, target = torch.randn(2, rows, 1)
    expected = first(pred, target).item()
    for tensor in first.prior.buffers():
        tensor.data.mul_(1.5)
    first(pred, target)
    assert second(pred, target).item() == expected
