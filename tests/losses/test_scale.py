"""sigma: the floor, learning, checkpoints; "auto" is in test_auto.py."""

import io

import pytest
import torch

from losses import BMC, GAI, BalancedLoss, Batch, Flat, Gaussian, Huber, Laplace
from tests.losses.pairs import mixture

LEARN = {Gaussian: "learn_sigma", Laplace: "learn_scale", Huber: "learn_scale"}


def test_checkpoint_round_trip_of_a_learned_sigma():
    loss, file = GAI(mixture(3, torch.float32), [0.5, 1.0, 2.0], learn_sigma=True), io.BytesIO()
    optimiser = torch.optim.SGD(loss.parameters(), lr=0.01)
    pred, target = torch.randn(2, 9, 3)
    loss(pred, target).backward()
    optimiser.step()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other = GAI(mixture(3, torch.float32), [1.0, 1.0, 1.0], learn_sigma=True)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.likelihood.sigma.tolist() == loss.likelihood.sigma.tolist()
    assert torch.equal(other(pred, target), loss(pred, target))


def test_learned_sigma_is_a_parameter_and_a_fixed_one_is_not():
    assert [name for name, _ in BMC(1.0, learn_sigma=True).named_parameters()] == [
        "likelihood.sigma"
    ]
    assert not list(BMC(1.0).parameters())
    assert "likelihood.sigma" in BMC(1.0).state_dict()


@pytest.mark.parametrize("kind", LEARN)
@pytest.mark.parametrize("prior", [Flat, Batch])
def test_floor_holds_and_lets_go(kind, prior):
    """Pushed below the floor, the scale in use is the floor; large residuals lift it again."""
    likelihood = kind(0.5, **{LEARN[kind]: True}, floor=0.1)
    loss = BalancedLoss(likelihood, prior())
    raw = likelihood.get_parameter(likelihood.symbol)
    with torch.no_grad():
        raw.fill_(-3.0)  # what an optimiser's step may do
    assert likelihood.value.item() == pytest.approx(0.1)
    pred, target = torch.zeros(6, 1), torch.linspace(-4, 4, 6)[:, None]
    value = loss(pred, target)
    assert torch.isfinite(value)
    reference = BalancedLoss(kind(0.1, **{LEARN[kind]: True}, floor=0.1), prior())
    torch.testing.assert_close(value, reference(pred, target), rtol=1e-5, atol=1e-5)  # float32
    value.backward()
    assert raw.grad.item() < 0  # descent raises it: no dead gradient below the floor
    optimiser = torch.optim.Adam(loss.parameters(), lr=0.3)
    for _ in range(60):
        optimiser.zero_grad()
        loss(pred, target).backward()
        optimiser.step()
    assert likelihood.value.item() > 0.5


def test_a_sigma_below_the_floor_is_lifted_at_once():
    assert Gaussian(1e-6, floor=0.01).value.item() == pytest.approx(0.01)


def test_sigma_learns_the_noise():
    """Flat prior: maximum likelihood, sigma^2 = mean residual^2."""
    g = torch.Generator().manual_seed(0)
    pred, target = torch.zeros(500, 2), 1.7 * torch.randn(500, 2, generator=g)
    loss = BalancedLoss(Gaussian([1.0, 1.0], learn_sigma=True), Flat())
    optimiser = torch.optim.Adam(loss.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        loss(pred, target).backward()
        optimiser.step()
    expected = target.square().mean(0).sqrt()
    # 1e-2: where 300 steps of Adam end
    torch.testing.assert_close(loss.likelihood.sigma.detach(), expected, rtol=1e-2, atol=0)
