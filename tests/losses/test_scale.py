"""sigma: the floor, learning, checkpoints, also of priors; "auto" is in test_auto.py."""

import io

import numpy as np
import pytest
import torch

from losses import (
    BMC,
    BalancedLoss,
    Batch,
    Bins,
    Flat,
    Gaussian,
    GaussianMixture,
    Histogram,
    Huber,
    Laplace,
)
from tests.losses.pairs import generator

LEARN = {Gaussian: "learn_sigma", Laplace: "learn_scale", Huber: "learn_scale"}


def test_checkpoint_round_trip_of_a_learned_sigma_and_a_queue():
    loss, file = BMC([0.5, 1.0, 2.0], learn_sigma=True, queue=6), io.BytesIO()
    optimiser = torch.optim.SGD(loss.parameters(), lr=0.01)
    pred, target = torch.randn(2, 9, 3)
    loss(pred, target).backward()
    optimiser.step()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other = BMC([1.0, 1.0, 1.0], learn_sigma=True, queue=6)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.likelihood.sigma.tolist() == loss.likelihood.sigma.tolist() != [0.5, 1.0, 2.0]
    assert other.prior.earlier.tolist() == target[:6].tolist()
    assert torch.equal(other(pred, target), loss(pred, target))


FAR = 1e6 + 30 * np.linspace(0, 1, 500) ** 2  # float32 cannot tell these labels apart


@pytest.mark.parametrize(
    ("likelihood", "saved", "other"),
    [
        (
            Gaussian(0.3),
            Bins.fit(FAR, np.linspace(1e6, 1e6 + 30, 101)),
            Bins.fit(FAR - 1e6, np.linspace(0, 30, 101)),
        ),
        (Gaussian(0.3), GaussianMixture.fit(FAR, 2), GaussianMixture.fit(FAR - 1e6, 2)),
        (
            Histogram([0.0, 1, 2, 4, 8, 30]),
            Bins.fit(FAR - 1e6, [0, 1, 2, 4, 8, 30], power=0.5),
            Bins.fit(FAR - 1e6, np.linspace(0, 30, 6), power=0.0),
        ),
    ],
)
def test_a_prior_that_is_loaded_is_the_saved_one(likelihood, saved, other):
    target = torch.from_numpy(FAR[::10, None]) - (1e6 if isinstance(likelihood, Histogram) else 0)
    target = target.float()
    width = likelihood.width(1)
    pred = torch.randn(50, width, generator=generator()) + (target if width == 1 else 0)
    one, two = (BalancedLoss(likelihood, prior) for prior in (saved, other))
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(pred, target), two(pred, target))


def test_learned_sigma_is_a_parameter_and_a_fixed_one_is_not():
    assert [name for name, _ in BMC(1.0, learn_sigma=True).named_parameters()] == [
        "likelihood.sigma"
    ]
    assert not list(BMC(1.0).parameters())
    assert "likelihood.sigma" in BMC(1.0).state_dict()


@pytest.mark.parametrize("kind", LEARN)
@pytest.mark.parametrize("prior", [Flat, Batch])
def test_the_floor_holds_and_can_be_left(kind, prior):
    """Below the floor, the scale in use is the floor; large residuals still lift the parameter."""
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


def test_a_fixed_sigma_below_the_floor_is_the_floor():
    likelihood = Gaussian(1e-6, floor=0.01)
    assert likelihood.value.item() == pytest.approx(0.01)
    likelihood.sigma.fill_(1e-9)
    assert likelihood.value.item() == pytest.approx(0.01)
