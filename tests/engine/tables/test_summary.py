"""The summary says who is ahead by the intervals of the stored values, not by the means."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine.tables import summary
from engine.tables.table import cell, write

BENCHMARK = {
    "title": "Ages",
    "highlight": {
        "baseline": ["Vanilla"],
        "reweighted": ["RRT"],
        "paper": ["BMC", "GAI"],
        "ours": ["Histogram"],
    },
    "summary": {"column": "bmae"},
    "columns": {"bmae": {"title": "bMAE", "unit": "years", "better": "lower"}},
}
MEANS = {"Vanilla": 14.0, "RRT": 13.0, "BMC": 12.0, "GAI": 12.5, "Histogram": 11.9}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five seeds that agree; on images Histogram is ahead of Vanilla alone."""
    monkeypatch.setattr(summary, "RESULTS", tmp_path)
    rng = np.random.default_rng(0)
    rows = {
        row: {"bmae": cell([mean + 0.01 * i * (-1) ** i for i in range(5)])}
        for row, mean in MEANS.items()
    }
    rows["Histogram"] = {"bmae": cell([11.9, 11.0, 13.1, 12.4, 11.1])}
    noise = rng.normal(0, 0.5, 400)
    draws = {row: {"bmae": mean + noise} for row, mean in MEANS.items()}
    draws["RRT"]["bmae"] = MEANS["RRT"] + rng.normal(0, 0.5, 400)
    seeds = {row: [(0, s) for s in range(5)] for row in rows}
    write({"rows": rows, "seeds": seeds}, tmp_path, "wiki", draws)
    return tmp_path


def test_verdicts_follow_from_values_and_draws(results: Path):
    content = json.loads((results / "wiki.json").read_text())
    line = summary.line(BENCHMARK, "wiki", content)
    assert line[2:6] == ["14.00 Vanilla", "13.00 RRT", "12.00 BMC", "11.90 Histogram"]
    # BMC's seeds are ahead of RRT's, its images are not: their draws are independent here
    assert line[6] == (
        "BMC ahead of Vanilla, tie with RRT; Histogram ahead of Vanilla, tie with RRT and BMC"
    )


def test_without_values_nothing_is_said(results: Path):
    content = json.loads((results / "wiki.json").read_text())
    del content["seeds"]
    words = summary.line(BENCHMARK, "wiki", content)[6]
    assert words == (
        "BMC open against Vanilla and RRT; Histogram open against Vanilla, RRT and BMC"
    )
