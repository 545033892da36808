"""Groupings: thresholds on both sides, bin edges, partitions, tails."""

import numpy as np
import pytest
import torch

from metrics import groups


@pytest.mark.parametrize(
    ("count", "shot"), [(1, "few"), (19, "few"), (20, "medium"), (100, "medium"), (101, "many")]
)
def test_age_shot_thresholds(count, shot):
    shots = groups.age_shots(np.full(count, 37))
    assert groups.SHOTS[shots[37]] == shot


def test_an_age_without_training_samples_is_few():
    shots = groups.age_shots(np.full((150, 1), 37.0))
    assert shots.shape == (201,)
    assert {age for age in range(201) if shots[age] != groups.FEW} == {37}


def test_ages_count_completed_years():
    ages = torch.tensor([0.0, 0.99, 29.0, 29.5, 29.999, 30.0, 200.0])
    assert groups.age_bins(ages).tolist() == [0, 0, 29, 29, 29, 30, 200]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_whole_millimetre_falls_in_its_decimetre(dtype):
    millimetres = np.arange(1, 10_000)
    depth = torch.from_numpy((millimetres / 1000).astype(dtype)).double()
    assert groups.depth_bins(depth).tolist() == (millimetres // 100).tolist()


def test_depths_beyond_ten_metres_fall_in_the_last_bin():
    assert groups.depth_bins(torch.tensor([9.95, 10.0, 12.3, 1e30])).tolist() == [99] * 4


def test_depth_shots_partition_the_bins_from_seven():
    members = groups.shot_members(groups.depth_shots())
    holders = sum(members[f"_{shot}"].long() for shot in groups.SHOTS)
    assert holders.tolist() == [0] * 7 + [1] * 93
    assert members[""].all()
    # 39 + 15 + 39 bins: the published lists, counted by hand.
    assert [int(members[f"_{shot}"].sum()) for shot in groups.SHOTS] == [39, 15, 39]


def test_rarity_regions_hold_both_ends():
    rarity = torch.linspace(3.0, 7.0, 1001, dtype=torch.float64)
    regions = groups.rarity_regions(rarity)
    assert (regions[0], regions[-1]) == (0, 99)
    assert (regions.diff() >= 0).all()
    assert len(regions.unique()) == 100


def test_a_rarity_on_an_edge_falls_in_the_region_below():
    rarity = torch.arange(101, dtype=torch.float64)  # width 1: every value is an edge
    assert groups.rarity_regions(rarity).tolist() == [0, *range(100)]


def test_equal_rarities_share_a_region():
    assert groups.rarity_regions(torch.full((5,), 2.0)).tolist() == [0] * 5


def test_rarest_rounds_down_and_prefers_the_first():
    rarity = torch.zeros(39)
    rarity[[5, 20]] = torch.tensor([1.0, 2.0])
    assert groups.rarest(rarity, 10).tolist() == [20, 5, 0]
    assert groups.rarest(rarity, 5).tolist() == [20]
    assert groups.rarest(rarity[:9], 10).tolist() == []
