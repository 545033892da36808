"""Labels and weights as tensors of any type, columns of a table and read-only arrays."""

import numpy as np
import pandas as pd
import pytest
import torch

from losses import Bins, GaussianMixture, Rebalancer, diagnose
from losses.reweight import label_weights


def read_only(values):
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("kind", [torch.tensor, lambda x: torch.tensor(x).bfloat16(), read_only])
def test_labels_may_be_tensors_of_any_type_and_read_only_arrays(kind):
    labels, edges = [0.5, 1.5, 1.5, 2.5] * 8, [0, 1, 2, 3]
    given = kind(labels)
    np.testing.assert_array_equal(Bins.fit(given, edges).weights, [0.25, 0.5, 0.25])
    np.testing.assert_array_equal(label_weights(given, edges), label_weights(labels, edges))
    assert GaussianMixture.fit(given, 1).means.item() == 1.5
    np.testing.assert_array_equal(Bins(kind([0.0, 1.0]), kind([1.0, 3.0])).weights, [0.25, 0.75])
    assert diagnose(given).sigma == diagnose(labels).sigma
    assert Rebalancer(given, sigma=1.0)(np.ones(1)) == Rebalancer(labels, sigma=1.0)(np.ones(1))


def test_counts_of_a_data_frame():
    counts = pd.Series([30, 30, 30, 41]).value_counts()
    prior = Bins(counts.index, counts)
    assert (prior.centers.tolist(), prior.weights.tolist()) == ([30, 41], [0.75, 0.25])


def test_a_mixture_of_tiny_labels_has_the_same_shape():
    y = np.random.default_rng(0).normal(size=(100, 1))
    found, expected = (GaussianMixture.fit(scale * y, 2) for scale in (1e-12, 1.0))
    torch.testing.assert_close(1e12 * found.means, expected.means, rtol=1e-6, atol=1e-6)
