"""Comparisons measure time and memory of the right side."""

import time

import pytest
import torch

from engine.speed.timing import Compare, peak, report


@pytest.mark.parametrize(("times", "ratio"), [(1, 0.25), (2, 0.125)])
def test_the_ratio_is_ours_by_the_alternatives(times: int, ratio: float):
    compare = Compare(rounds=3, budget=10, threads=1)
    row = compare("fast", lambda: time.sleep(0.02), "slow", lambda: time.sleep(0.08), times)
    assert ratio / 2 < row["time"] < 2 * ratio  # a busy machine sleeps longer
    assert row["ours_ms"] < row["other_ms"]


def test_the_peak_is_what_lives_at_one_time():
    def one_by_one() -> None:
        for _ in range(4):
            torch.zeros(1000)

    assert peak(one_by_one) < 2 * 4000
    assert peak(lambda: [torch.zeros(1000) for _ in range(4)]) >= 4 * 4000


def test_the_table_shows_ratios_below_and_above_one():
    times = {"ours_ms": 1.0, "other_ms": 4.0}
    rows = [
        {"name": "a", "against": "b", **times, "time": 0.25, "memory": None},
        {"name": "c", "against": "d", **times, "time": 5.128, "memory": 0.01},
    ]
    assert report({"losses": {"rows": rows}}).splitlines()[2:] == [
        "| losses | a | b | 1 | 4 | 4.0x less |  |",
        "| losses | c | d | 1 | 4 | 5.13x | 100.0x less |",
    ]
