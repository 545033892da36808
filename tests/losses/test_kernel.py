"""The likelihood of the released loss of human meshes, against numbers that its code gave.

They are of MMHuman3D's BMCLossMD with its config's weights, 60 and 5, on the same inputs; in our
terms 60 / 216 times the loss at strength 5 / 120.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from losses import BalancedLoss, Batch, Flat, Gaussian, GaussianKernel, Product
from tests.losses.pairs import mixture

STRENGTH = 5 / 120
# sigma: (loss, its gradient to the first three numbers of the first prediction, the norm of the
# gradient to all predictions, the gradient to sigma)
RELEASED = {
    0.3: (28.92392, [-0.0124257, 0.00604723, 0.01745354], 1.154633, -192.8238),
    1.0: (28.93644, [-0.01242309, 0.005851851, 0.0169927], 1.155219, -57.82682),
    5.0: (30.58189, [-0.01253897, 0.005653467, 0.01676388], 1.153098, -11.50039),
    21.4: (62.42526, [-0.01257095, 0.005657328, 0.01675319], 1.152887, -2.685551),
}


def poses() -> tuple[Tensor, Tensor]:
    pred, target = np.random.default_rng(0).normal(0, 0.5, (2, 24, 216)).astype(np.float32)
    return torch.from_numpy(pred), torch.from_numpy(target)


@pytest.mark.parametrize("sigma", RELEASED)
def test_it_is_the_released_loss(sigma: float):
    pred, target = poses()
    loss = BalancedLoss(GaussianKernel(sigma, learn_sigma=True), Batch(), STRENGTH)
    value = 60 / 216 * loss(pred.requires_grad_(), target)
    value.backward()
    expected, first, norm, to_sigma = RELEASED[sigma]
    assert pred.grad is not None
    # 2e-6: theirs are float32, written with seven digits
    assert value.item() == pytest.approx(expected, rel=2e-6)
    assert float(pred.grad.norm()) == pytest.approx(norm, rel=2e-6)
    assert float(loss.likelihood.sigma.grad) == pytest.approx(to_sigma, rel=2e-6)  # pyright: ignore
    assert pred.grad[0, :3].tolist() == pytest.approx(first, rel=1e-5)


@pytest.mark.parametrize("prior", ["batch", "mixture", "flat", "product"])
def test_theorem_1_cannot_tell_it_from_a_gaussian(prior: str):
    """At strength 1 the normaliser cancels; else (1 - strength) of it is the difference."""
    torch.manual_seed(0)
    pred, target = torch.randn(2, 7, 3, dtype=torch.float64)
    priors = {
        "batch": Batch(),
        "mixture": mixture(3, torch.float64),
        "flat": Flat(),
        "product": Product([Batch(), Batch(), Batch()]),
    }
    sigma = torch.tensor(0.7, dtype=torch.float64)
    for strength in (1.0, 0.25):
        made = BalancedLoss(GaussianKernel(sigma), priors[prior], strength)(pred, target)
        gaussian = Gaussian(sigma)
        expected = BalancedLoss(gaussian, priors[prior], strength)(pred, target)
        expected -= gaussian.unit * (1 - strength) * gaussian.log_norm(pred)
        torch.testing.assert_close(made, expected)
