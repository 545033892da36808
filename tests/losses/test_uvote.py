"""UVOTE: weights, loss and vote, against the released code and limits."""

import numpy as np
import pytest
import torch

from losses import UVOTE, BalancedLoss, Bins, Flat

LABELS = np.repeat(np.arange(5.0), [100, 50, 20, 5, 1])
PRIOR = Bins.fit(LABELS, np.arange(-0.5, 5))
TARGET = torch.from_numpy(LABELS)[:, None]


def test_weights_balance_the_labels():
    """With r = 1 every label has the same total weight, and the mean is one for every r."""
    weights = UVOTE(PRIOR.double(), (0.0, 0.5, 1.0)).weights(TARGET)
    torch.testing.assert_close(weights.mean(0), torch.ones(3).double(), rtol=1e-6, atol=0)
    totals = [weights[TARGET[:, 0] == k, 2].sum().item() for k in range(5)]
    np.testing.assert_allclose(totals, len(LABELS) / 5, rtol=1e-5)


def test_uneven_bins_do_not_matter_to_uniform_labels():
    uvote = UVOTE.fit(np.linspace(0.005, 9.995, 1000), [0, 1, 2, 4, 10])
    weights = uvote.weights(torch.tensor([[0.5], [3.0], [7.0]]))
    torch.testing.assert_close(weights, torch.ones(3, 2))


def test_the_most_certain_head_predicts():
    uvote = UVOTE(PRIOR)
    pred = torch.tensor([[1.0, 9.0, -2.0, 3.0], [1.0, 9.0, 0.5, 0.1]])
    assert uvote.decode(pred).tolist() == [[1.0], [9.0]]
    assert uvote.width(1) == 4
    same = UVOTE.fit(LABELS, np.arange(-0.5, 5))
    torch.testing.assert_close(same.weights(TARGET), uvote.weights(TARGET))
    with pytest.raises(ValueError, match=r"UVOTE expects pred \(N, 4\)"):
        BalancedLoss(uvote, Flat())(torch.zeros(3, 2), torch.zeros(3, 1))


def test_loss_of_the_released_code():
    """SherryJYC/UVOTE, agedb-dir, commit 6fa3176, in float64: the sum over two heads."""
    ages = np.repeat([20.0, 30.0, 40.0, 50.0], [60, 30, 12, 6])
    rng, n = np.random.default_rng(0), len(ages)
    means = ages + rng.normal(0, 5, n), ages + rng.normal(0, 8, n)
    columns = (*means, rng.normal(1.5, 0.3, n), rng.normal(2, 0.3, n))
    pred = torch.from_numpy(np.stack(columns, 1)).requires_grad_()
    loss = BalancedLoss(UVOTE(Bins.fit(ages, np.arange(-0.5, 122)).double()), Flat())
    value = 2 * loss(pred, torch.from_numpy(ages)[:, None])
    assert value.item() == pytest.approx(6.7028005910114885, rel=1e-7)  # weights: float32
    last = torch.autograd.grad(value, pred)[0][-1].tolist()
    expected = [0.0018872282604, 0.0073791555432, 0.0033992470421, 0.0082645990445]
    assert last == pytest.approx(expected, rel=2e-7)
