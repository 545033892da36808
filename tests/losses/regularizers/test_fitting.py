"""Settings of regularisers, and those that are fitted to the training labels."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import gaussian_kde

from losses.regularizers import SRL, ConR, DistLoss, RankSim, RnC
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


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_settings_must_be_positive(value: float):
    names = {RankSim: ["interpolation"], DistLoss: ["bandwidth", "strength"]}
    names |= {ConR: ["temperature"], RnC: ["temperature"], SRL: ["temperature", "points", "step"]}
    for kind, settings in names.items():
        for name in settings:
            with pytest.raises(ValueError, match=f"{name} must be a positive number, got {value}"):
                kind(**{name: value})
    with pytest.raises(ValueError, match="weight >= 0"):
        RnC(weight=math.nan)
