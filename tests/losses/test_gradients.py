"""Derivatives against finite differences in float64, for every pair, the scale included."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.nn import functional

from tests.losses.pairs import D64, PAIRS, batch, learns, make


def unscaled(loss, pred, target, weight, scale=None):
    """The loss as a function of pred and its scale, divided by the unit: the unit is detached on
    purpose, so that the product is no derivative of anything."""
    if scale is None:
        return loss(pred, target, weight) / loss.likelihood.unit
    value = functional_call(
        loss, {f"likelihood.{loss.likelihood.symbol}": scale}, (pred, target, weight)
    )
    s = scale.detach()
    unit = {"Gaussian": 2 * (s * s).mean(), "Laplace": s.mean(), "Huber": (s * s).mean()}
    return value / unit[type(loss.likelihood).__name__]


@pytest.mark.parametrize(("weighted", "strength"), [(False, 1.0), (True, 0.4)])
@pytest.mark.parametrize("pair", PAIRS)
def test_gradcheck(pair, weighted, strength):
    learn = learns(pair) and " Flat " not in pair  # Flat's constant is detached on purpose
    loss = make(pair, learn=learn, strength=strength)
    pred, target = batch(pair, 5)
    weight = torch.linspace(0.5, 1.5, 5, dtype=D64) if weighted else None
    scale = [value.detach().clone().requires_grad_() for value in loss.parameters()]
    assert gradcheck(
        lambda p, *s: unscaled(loss, p, target, weight, *s), (pred.requires_grad_(), *scale)
    )


def test_flat_scale_has_the_gradient_of_a_likelihood():
    """The constant that a flat prior takes away carries no gradient, so that a learned sigma
    still finds the residuals' spread."""
    pred, target = batch("Gaussian Flat 3", 6)
    loss = make("Gaussian Flat 3", learn=True)
    loss(pred, target).backward()
    sigma = torch.tensor(0.8, dtype=D64, requires_grad=True)
    nll = functional.gaussian_nll_loss(pred, target, sigma.square().expand(6, 3), reduction="none")
    (2 * 0.8**2 * nll.sum(-1).mean()).backward()
    # 1e-12: float64 rounding
    torch.testing.assert_close(loss.likelihood.sigma.grad, sigma.grad, rtol=1e-12, atol=1e-12)
