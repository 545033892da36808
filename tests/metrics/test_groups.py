"""Bin edges that the loops of test_report.py do not reach."""

import numpy as np
import pytest
import torch

from metrics import groups


def test_similarity_shots_and_bins():
    labels = np.concatenate([np.full(101, 0.05), np.full(30, 2.25), np.full(29, 4.95)])
    shots = groups.similarity_shots(labels)
    assert shots[[0, 22, 49, 33]].tolist() == [groups.MANY, groups.MEDIUM, groups.FEW, groups.FEW]
    scores = torch.tensor([0.0, 0.1, 4.99, 5.0])
    assert groups.similarity_bins(scores).tolist() == [0, 1, 49, 49]
    # 0.6 in float32 is above the edge 0.6 in float64; both are rounded before they are compared.
    tenths = torch.arange(51, dtype=torch.float64) / 10
    edges = np.histogram_bin_edges(np.array([], np.float32), 50, range=(0.0, 5.0))
    expected = [min(49, int(np.sum(edges <= np.float32(x))) - 1) for x in tenths.numpy()]
    assert groups.similarity_bins(tenths).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_depth_bins_of_every_whole_millimetre_and_beyond_ten_metres(dtype):
    millimetres = np.arange(1, 10_000)
    depth = torch.from_numpy((millimetres / 1000).astype(dtype)).double()
    assert groups.depth_bins(depth).tolist() == (millimetres // 100).tolist()
    assert groups.depth_bins(torch.tensor([9.95, 10.0, 12.3, 1e30])).tolist() == [99] * 4


def test_rarity_regions():
    regions = groups.rarity_regions(torch.linspace(3.0, 7.0, 1001, dtype=torch.float64))
    assert (regions[0], regions[-1]) == (0, 99)
    assert (regions.diff() >= 0).all()
    assert len(regions.unique()) == 100
    edges = torch.arange(101, dtype=torch.float64)  # width 1: an edge falls in the region below
    assert groups.rarity_regions(edges).tolist() == [0, *range(100)]
    assert groups.rarity_regions(torch.full((5,), 2.0)).tolist() == [0] * 5
