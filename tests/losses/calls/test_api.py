"""The losses as torch's: classes, reductions, a functional form, and what a training loop can get
wrong. docs/training_loops.md runs them in other libraries' loops, test_ranks.py on two ranks."""

import copy
import pickle
import pydoc
import warnings

import pytest
import torch

from losses import (
    BMC,
    BNI,
    GAI,
    BalancedLoss,
    Batch,
    Bins,
    Flat,
    Gaussian,
    Laplace,
    balanced_mse,
)
from losses.batches import PASSES
from tests.losses.pairs import D64, make, mixture

BINS = Bins([-1.0, 0, 1], [1.0, 2, 3])
NAN = torch.nan
CLOSE = 1e-10  # float64, added up in another order


def test_the_three_are_classes():
    class Own(BMC):
        """Half the loss."""

        def rows(self, *given):
            return super().rows(*given) / 2

    x, y = torch.randn(2, 4000, 1)
    for loss in (BMC(), GAI(mixture(1, torch.float32)), BNI(BINS), Own()):
        assert isinstance(loss, BalancedLoss)
    torch.testing.assert_close(Own()(x, y), BMC()(x, y) / 2)
    for kind in (BMC, GAI, BNI):
        text = pydoc.render_doc(kind)
        assert all(word in text for word in ("Arguments:", "sigma", "strength", "Examples:"))


def test_repr_and_sigma():
    loss = BMC([2.0, 0.5], learn_sigma=True, queue=9)
    assert repr(loss) == (
        "BMC(Gaussian, Batch, sigma=[2.0, 0.5], learned=True, queue=9, strength=1.0, "
        "full_nll=False, reduction=mean)"
    )
    assert "sigma=auto, learned=False, queue=0" in repr(BMC("auto"))
    assert "Gaussian, Bins, sigma=1.0, learned=False, K=3, power=1.0" in repr(BNI(BINS))
    assert "K=3" in repr(GAI(mixture(1, D64)))
    assert "Laplace, Flat, scale=1.0" in repr(BalancedLoss(Laplace(), Flat()))
    assert "BalancedLoss(Categorical, Classes, K=5" in repr(make("Categorical Classes 1"))
    assert loss.sigma.tolist() == [2.0, 0.5]
    assert BalancedLoss(Laplace(3.0), Flat()).sigma == 3


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("prior", [None, BINS, mixture(1, torch.float32)])
def test_functional_form(prior, reduction):
    x, y = torch.randn(2, 8, 1)
    weight = torch.rand(8)
    loss = BalancedLoss(Gaussian(0.7, True), prior or Batch(), 0.5, reduction=reduction)
    sigma = torch.tensor(0.7, requires_grad=True)
    options = {"strength": 0.5, "reduction": reduction}
    value = balanced_mse(x, y, prior, sigma, weight, **options)
    torch.testing.assert_close(value, loss(x, y, weight))
    torch.testing.assert_close(balanced_mse(x, y, prior, 0.7, weight, **options), value)
    value.sum().backward()
    loss(x, y, weight).sum().backward()
    torch.testing.assert_close(sigma.grad, loss.likelihood.sigma.grad)


def train(loss, makers, order: str, accumulate: int = 1) -> list[str]:
    """Return the warnings of a training loop. order: when the gradients are cleared: after the
    update, or before the forward or the backward pass."""
    model = torch.nn.Linear(2, 1)
    optimizers = [make(model, loss) for make in makers]
    x, y = torch.randn(2, 8, 2)

    def clear(now: str) -> None:
        for optimizer in optimizers if now == order else ():
            optimizer.zero_grad()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for step in range((PASSES + 3) * accumulate):
            if step % accumulate == 0:
                clear("forward")
            value = loss(torch.tanh(model(x)), y[:, :1])
            if step % accumulate == 0:
                clear("before")
            value.backward()
            if (step + 1) % accumulate == 0:
                for optimizer in optimizers:
                    optimizer.step()
                clear("after")
    return [str(one.message) for one in found]


OPTIMIZERS = {
    "SGD": torch.optim.SGD,
    "fused": lambda groups, lr: torch.optim.AdamW(groups, lr=lr, fused=True),
    "foreach": lambda groups, lr: torch.optim.Adam(groups, lr=lr, foreach=True),
}
orders = pytest.mark.parametrize("order", ["after", "before", "forward"])


@orders
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_learned_sigma_without_an_optimiser_gets_one_warning(name, order):
    def of_model(model, loss):
        return OPTIMIZERS[name](model.parameters(), lr=0.01)

    learned = copy.deepcopy(BMC(1.0, learn_sigma=True))
    for loss in (learned, pickle.loads(pickle.dumps(BMC("auto", learn_sigma=True)))):
        (message,) = train(loss, [of_model], order)
        assert "learned sigma of BMC never: no optimiser has it" in message
        assert "loss.parameters()" in message
        assert train(loss, [of_model], order) == []
    kept = BalancedLoss(Laplace(2.0, learn_scale=True), Batch())
    assert "learned scale of BalancedLoss" in train(kept, [of_model], order, accumulate=2)[0]


@orders
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_sigma_that_is_trained_gets_none(name, order):
    def of_model(model, loss):
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def both(model, loss):
        return OPTIMIZERS[name]([*model.parameters(), *loss.parameters()], lr=0.01)

    def of_loss(model, loss):
        return OPTIMIZERS[name](loss.parameters(), lr=0.01)

    assert train(BMC(learn_sigma=True), [both], order) == []
    assert train(BMC(learn_sigma=True), [of_model, of_loss], order) == []
    assert train(BMC(learn_sigma=True), [both], order, accumulate=PASSES + 1) == []
    assert train(BMC(), [of_model], order) == []
    frozen = BMC(learn_sigma=True)
    frozen.likelihood.sigma.requires_grad_(False)
    assert train(frozen, [of_model], order) == []
    loss = BMC(learn_sigma=True)
    x = torch.randn(8, 1, requires_grad=True)
    for _ in range(3 * PASSES):  # nothing is trained
        loss(2 * x, torch.zeros(8, 1)).backward()
