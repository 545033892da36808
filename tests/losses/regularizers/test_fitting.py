"""Regularisers that are fitted to the training labels."""

import numpy as np
import pytest
import torch
from scipy.stats import gaussian_kde

from losses.regularizers import SRL
from losses.regularizers.dist_loss import distribution


@pytest.mark.parametrize("labels", [np.repeat([0.0, 1], 50), np.repeat(np.arange(5.0), 7)])
def test_dist_loss_has_the_bandwidth_of_all_labels(labels):
    """As the released code, which gives every label to SciPy."""
    values, cdf = distribution(labels, None, 0.5)
    density = gaussian_kde(labels, 0.5)(values)
    expected = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    np.testing.assert_allclose(cdf, expected / expected[-1], atol=1e-9)


def test_srl_starts_anew_after_another_fit():
    z, y = torch.randn(8, 3), torch.arange(8.0)[:, None]
    srl = SRL().fit(y)
    srl(z, y, y)
    srl.end_epoch()
    srl.fit(y[:5])
    fresh = SRL().fit(y[:5])
    torch.testing.assert_close(srl(z[:5], y[:5], y[:5]), fresh(z[:5], y[:5], y[:5]))
