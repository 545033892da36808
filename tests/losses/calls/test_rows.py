"""Weights, swapped arguments and empty batches, for every pair, in plain calls, under torch.func
and compiled."""

import math

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from losses import (
    BMC,
    Bins,
    GaussianMixture,
    WeightedLoss,
)
from losses.batches import check_numbers
from tests.losses.pairs import D64, PAIRS, batch, make


@pytest.mark.parametrize("pair", PAIRS)
def test_swapped_arguments_are_refused(pair):
    pred, target = batch(pair, 5)
    with pytest.raises(ValueError, match=r"The order is loss\(pred, target\): are they swapped"):
        make(pair)(pred, target.requires_grad_())
    with pytest.raises(ValueError, match="swapped"):
        grad(lambda y: make(pair)(pred, y))(target.detach())


@pytest.mark.parametrize(
    ("pair", "count"), [*((pair, 6) for pair in PAIRS), ("Gaussian Bins 1", 20_000)]
)
def test_weights_have_a_gradient(pair, count):
    """unit * (row - mean) / sum of the weights, in every mode."""
    loss, (pred, target) = make(pair), batch(pair, count)
    weight = torch.linspace(0.5, 1.5, count, dtype=D64)
    rows = loss.rows(pred, target, weight)
    mean = (rows * weight).sum() / weight.sum()
    expected = loss.likelihood.unit * (rows - mean) / weight.sum()
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for call in (loss, compiled) if count == 6 else (loss,):
        leaf = weight.clone().requires_grad_()
        (made,) = torch.autograd.grad(call(pred, target, leaf), leaf)
        torch.testing.assert_close(made, expected)
    torch.testing.assert_close(grad(lambda w: loss(pred, target, w))(weight), expected)


@pytest.mark.parametrize("pair", [*PAIRS, "weighted"])
def test_empty_batches_and_negative_weights(pair):
    loss = WeightedLoss() if pair == "weighted" else make(pair)
    pred, target = batch("Gaussian Flat 1" if pair == "weighted" else pair, 3)
    with pytest.raises(ValueError, match="Expected at least one sample, got an empty batch"):
        loss(pred[:0], target[:0])
    with pytest.raises(ValueError, match="Weights must not be negative, got -1"):
        loss(pred, target, torch.tensor([3.0, -1, 1]))
    value = vmap(lambda w: loss(pred, target, w))(torch.tensor([[3.0, -1, 1]], dtype=D64))
    assert value.isnan().all()  # where no number can be looked at


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("pair", [p for p in PAIRS if "Categorical" not in p])
def test_where_nothing_is_read_a_bad_label_makes_the_loss_bad(pair, bad):
    pred, target = batch(pair, 4)
    target[1, 0] = bad
    loss = make(pair)
    value = vmap(lambda y: loss(pred, y))(target[None])
    assert not value.isfinite().any()
    with pytest.raises(ValueError, match=r"Targets must be finite; samples \[1\] are not"):
        check_numbers(target)


def test_vmap_leaves_nothing_batched_in_the_queue():
    losses = [BMC(1.0, queue=8) for _ in range(2)]
    parameters, buffers = stack_module_state(losses)
    pred, target = torch.randn(2, 2, 5, 1)

    def one(parameters, buffers, pred, target):
        return functional_call(losses[0], (parameters, buffers), (pred, target))

    assert vmap(one)(parameters, buffers, pred, target).shape == (2,)
    assert losses[0](pred[0], target[0]).isfinite()
    assert len(losses[0].prior.earlier) == 5


def test_a_prior_does_not_share_memory_with_what_it_was_made_of():
    centers, weights = torch.arange(3.0), torch.ones(3)
    means, covariances = torch.zeros(1, 1), torch.ones(1, 1, 1)
    bins, mix = Bins(centers, weights), GaussianMixture(torch.ones(1), means, covariances)
    centers.fill_(9)
    means.fill_(9)
    covariances.fill_(9)
    assert bins.centers.tolist() == [0, 1, 2]
    assert mix.means.item() == 0
    assert mix.covariances.item() == 1
