"""Intervals of differences: against closed forms, and by how often they are right."""

import math

import numpy as np
import pytest

from engine.tables.intervals import difference, over_images, over_seeds, paired, verdict


def test_pairs_are_the_same_seeds():
    ours = {(0, 0): 5.0, (0, 1): 6.0, (1, 0): 4.0}
    assert paired(ours, {(0, 0): 1.0, (0, 1): 3.0}) == {(0, 0): 4.0, (0, 1): 3.0}
    # Vanilla is stage 1 itself: one value for each stage 1, whatever the seed of stage 2
    stage1 = {(0, 0): 1.0, (1, 1): 2.0}
    assert paired(ours, stage1) == {(0, 0): 4.0, (0, 1): 5.0, (1, 0): 2.0}
    assert paired(stage1, ours) == {(0, 0): -4.0, (0, 1): -5.0, (1, 0): -2.0}
    assert paired(ours, {(7, 7): 1.0}) == {}
    assert paired({(0, 0): math.nan}, {(0, 0): 1.0}) == {}


def test_the_t_interval_is_the_textbook_one():
    # mean 2, standard deviation 1, n = 3; with two degrees of freedom the quantile is known
    p = 0.975
    half = (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p))) / math.sqrt(3)
    expected = pytest.approx((2 - half, 2 + half), rel=1e-12)
    assert over_seeds({(0, 0): 1.0, (0, 1): 2.0, (0, 2): 3.0}) == expected
    # three stage-1 runs with two heads each: their means, n = 3 and not 6
    nested = {(0, 0): 0.5, (0, 1): 1.5, (1, 0): 2.0, (1, 1): 2.0, (2, 0): 2.0, (2, 1): 4.0}
    assert over_seeds(nested) == expected
    assert over_seeds({(0, 0): 1.0}) is None
    assert over_seeds({}) is None


def test_an_interval_over_images_excludes_empty_replicates():
    a = np.array([1.0, 2, 3, math.nan])
    assert over_images(a, np.zeros(4)) == pytest.approx((1.05, 2.95))
    assert over_images(np.full(3, math.nan), np.zeros(3)) is None


def test_ahead_needs_both_intervals_on_the_better_side():
    assert verdict((-2, -1), (-3, -0.1), "lower") == "ahead"
    assert verdict((-2, -1), (-3, 0.1), "lower") == "tie"
    assert verdict((-2, -1), (-3, -0.1), "higher") == "behind"
    assert verdict((1, 2), (0.1, 3), "lower") == "behind"
    assert verdict(None, (-3, -0.1), "lower") == "open"
    assert verdict((-2, -1), None, "lower") == "open"
    assert verdict((-2, -1), None, "lower", sampled=False) == "ahead"
    assert verdict((-2, 1), None, "lower", sampled=False) == "tie"
    assert verdict(None, None, "lower", sampled=False) == "open"


def test_equal_methods_are_seldom_significantly_different():
    """Of 400 comparisons of a method with itself on other seeds and images, at most 5% by each
    interval, and so less by both."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        rows = []
        for _ in range(2):
            values = {(0, s): rng.normal(10, 1) for s in range(5)}
            replicates = np.mean(list(values.values())) + rng.normal(0, 0.5, 300)
            rows.append({"values": values, "replicates": replicates})
        wrong += difference(rows[0], rows[1], "lower")["verdict"] != "tie"
    assert wrong <= 0.05 * 400
