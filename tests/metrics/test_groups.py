"""Groupings: thresholds on both sides, bin edges, partitions, tails."""

import numpy as np
import pytest
import torch

from metrics import groups


@pytest.mark.parametrize(
    ("count", "shot"), [(1, "few"), (19, "few"), (20, "medium"), (100, "medium"), (101, "many")]
)
def test_age_shot_thresholds(count, shot):
    shots = groups.age_shots(np.full((count, 1), 37.0))
    assert shots.shape == (201,)
    assert groups.SHOTS[shots[37]] == shot
    assert (shots[np.arange(201) != 37] == groups.FEW).all()  # ages without training samples


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


def test_ages_count_completed_years():
    ages = torch.tensor([0.0, 0.99, 29.0, 29.5, 29.999, 30.0, 200.0])
    assert groups.age_bins(ages).tolist() == [0, 0, 29, 29, 29, 30, 200]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_depth_bins_of_every_whole_millimetre_and_beyond_ten_metres(dtype):
    millimetres = np.arange(1, 10_000)
    depth = torch.from_numpy((millimetres / 1000).astype(dtype)).double()
    assert groups.depth_bins(depth).tolist() == (millimetres // 100).tolist()
    assert groups.depth_bins(torch.tensor([9.95, 10.0, 12.3, 1e30])).tolist() == [99] * 4


def test_depth_shots_partition_the_bins_from_seven():
    members = groups.shot_members(groups.depth_shots())
    holders = sum(members[f"_{shot}"].long() for shot in groups.SHOTS)
    assert holders.tolist() == [0] * 7 + [1] * 93
    assert members[""].all()
    # 39 + 15 + 39 bins: the published lists, counted by hand.
    assert [int(members[f"_{shot}"].sum()) for shot in groups.SHOTS] == [39, 15, 39]


def test_rarity_regions():
    regions = groups.rarity_regions(torch.linspace(3.0, 7.0, 1001, dtype=torch.float64))
    assert (regions[0], regions[-1]) == (0, 99)
    assert (regions.diff() >= 0).all()
    assert len(regions.unique()) == 100
    edges = torch.arange(101, dtype=torch.float64)  # width 1: an edge falls in the region below
    assert groups.rarity_regions(edges).tolist() == [0, *range(100)]
    assert groups.rarity_regions(torch.full((5,), 2.0)).tolist() == [0] * 5


def test_rarest_rounds_down_and_prefers_the_first():
    rarity = torch.zeros(39)
    rarity[[5, 20]] = torch.tensor([1.0, 2.0])
    assert groups.rarest(rarity, 10).tolist() == [20, 5, 0]
    assert groups.rarest(rarity, 5).tolist() == [20]
    assert groups.rarest(rarity[:9], 10).tolist() == []
