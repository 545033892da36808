"""Features of zero."""

import pytest
import torch

from tests.losses.regularizers.test_regularizers import LABELS, METHODS, batch


@pytest.mark.parametrize("name", METHODS)
def test_features_of_zero_have_no_direction(name: str):
    """Of a backbone that ends with ReLU; the other gradients are at most 200."""
    z, pred, y = batch(8, 11, LABELS)
    z = z.detach().index_fill(0, torch.tensor([3]), 0.0).requires_grad_()
    made = METHODS[name]().eval()(z, pred.detach().requires_grad_(), y)
    if METHODS[name]().uses_features:
        assert torch.autograd.grad(made, z)[0].abs().max() < 1e3
