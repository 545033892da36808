"""The split law, per age; identical images are found and kept on one side."""

import numpy as np
import pytest

from datasets.split import balanced_split, identical_images

AGES = np.repeat([0, 1, 2, 30, 31, 120, 121, 186], [1, 2, 3, 300, 1000, 9, 50, 4])


@pytest.mark.parametrize("cap", [30, 50, 150])
def test_counts_per_age(cap):
    """n = min(count // 3, cap) to val and to test for the ages 0..120, the rest to train."""
    ages = np.random.default_rng(0).permutation(AGES)
    split = balanced_split(ages, cap, seed=666)
    assert split.shape == ages.shape
    for age in np.unique(ages):
        count = int((ages == age).sum())
        n = min(count // 3, cap) if age <= 120 else 0
        for name, expected in (("val", n), ("test", n), ("train", count - 2 * n)):
            assert ((ages == age) & (split == name)).sum() == expected
    np.testing.assert_array_equal(split, balanced_split(ages, cap, seed=666))
    assert (split != balanced_split(ages, cap, seed=667)).any()


def test_ages_within_a_year_are_split_together():
    split = balanced_split(np.array([4.0, 4.5, 4.9]), 1, seed=0)
    assert sorted(split) == ["test", "train", "val"]


def test_groups_stay_on_one_side_and_counts_stay():
    groups = [[0, 5, 10], [3, 4], [50, 150]]  # the last one has two ages
    ages = np.repeat([20, 40], 100)
    split = balanced_split(ages, 20, seed=1, together=groups)
    assert set(split[np.concatenate(groups)]) == {"train"}
    for age in (20, 40):
        assert (split[ages == age] == "val").sum() == 20
        assert (split[ages == age] == "test").sum() == 20
    copies = balanced_split(np.full(6, 9), 20, seed=1, together=[range(6)])
    assert set(copies) == {"train"}


def test_identical_images_are_found(tmp_path):
    """Equal bytes count, equal length alone does not."""
    contents = [b"aaaa", b"bbbb", b"aaaa", b"cc", b"dddd", b"bbbb", b"aaaa"]
    files = [tmp_path / f"{index}.jpg" for index in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    assert identical_images(files) == [[0, 2, 6], [1, 5]]
    with pytest.raises(FileNotFoundError, match=r"gone\.jpg: no such image"):
        identical_images([tmp_path / "gone.jpg"])
