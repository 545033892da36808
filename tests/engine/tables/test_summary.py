"""The verdicts of the summary and the forest plot follow from intervals, not from means."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine.tables.report import leverage, summary
from engine.tables.table import cell, write

BENCHMARK = {
    "name": "imdb_wiki",
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
TREES = {"": 3.0, " + post-hoc": 2.0, " + isotonic": 2.5}
MEANS |= {"Plain + post-hoc": 13.5, "Plain + isotonic": 13.6}  # which the table's config names


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
    replicates = {row: {"bmae": mean + noise} for row, mean in MEANS.items()}
    replicates["RRT"]["bmae"] = MEANS["RRT"] + rng.normal(0, 0.5, 400)
    seeds = {row: [(0, s) for s in range(5)] for row in rows}
    write({"rows": rows, "seeds": seeds}, tmp_path, "wiki", replicates)
    return tmp_path


def test_verdicts_follow_from_values_and_replicates(results: Path):
    line = summary.line(summary.measurement(BENCHMARK, "wiki"))
    best = ["14.00 Vanilla", "13.00 RRT", "12.00 BMC", "11.90 Histogram", "13.50 Plain + post-hoc"]
    assert line[1:6] == best
    # BMC's seeds are ahead of RRT's, its images are not: their replicates are independent here
    assert line[6] == (
        "BMC ahead of Vanilla, tie with RRT; Histogram ahead of Vanilla, tie with RRT and BMC; "
        "Plain + post-hoc ahead of Vanilla, tie with RRT, behind BMC and Histogram"
    )


def test_the_forest_plot_is_in_percent_of_the_reference(results: Path):
    one = summary.measurement(BENCHMARK, "wiki")
    found = summary.relative(one, "BMC", "Vanilla")
    assert found["mean"] == pytest.approx(-100 * 2 / 14, rel=0.01)
    assert found["images"] == pytest.approx([found["mean"]] * 2, rel=0.01)  # the same noise
    assert found["verdict"] == "ahead"
    best = {**one.best, "reweighted": None, "ours": None, "posthoc": None}
    left, right = summary.forest([one, one._replace(best=best)]).axes
    means = [line.get_xdata()[0] for line in left.lines if line.get_marker() in "osD"]
    expected = [found["mean"], -100 * 2.1 / 14, -100 * 0.5 / 14, found["mean"]]
    assert means == pytest.approx(expected, rel=0.01)
    assert [text.get_text() for text in right.texts] == ["compared with RRT", "not measured"]


def test_differences_beyond_the_axis_are_written(results: Path):
    one = summary.measurement(BENCHMARK, "wiki")
    far = {row: mean / 10 if row != "Vanilla" else mean for row, mean in MEANS.items()}
    values = {
        row: {"values": {(0, s): mean + 0.01 * s for s in range(3)}, "replicates": None}
        for row, mean in far.items()
    }
    benchmark = {**BENCHMARK, "sampled": False}
    left, _ = summary.forest([one._replace(samples=values, means=far, benchmark=benchmark)]).axes
    assert [text.get_text()[:6] for text in left.texts[1:]] == [
        f"◀ \N{MINUS SIGN}{percent}%" for percent in (91, 92, 90)
    ]


def test_predicted_and_measured_gains(results: Path):
    path = results / "wiki.json"
    found = {"Plain + post-hoc": [{"theorem": 0.02, "gain": 0.1}, {"theorem": 0.04, "gain": 0.1}]}
    path.write_text(json.dumps({**json.loads(path.read_text()), "leverage": found}))
    table = {"errors": {f"L2{k} (trees)": {"bmae": [1.0, v]} for k, v in TREES.items()}}
    table["leverage"] = {"theorem": 0.3, "gain": 0.5}
    (results / "tabular.json").write_text(json.dumps({"sets": {"a": table, "b": {"errors": {}}}}))
    ones = [summary.measurement(BENCHMARK, "wiki")]
    gains = list(leverage.points(ones, results))
    assert [point.name for point in gains] == ["wiki", "", ""]
    np.testing.assert_allclose([p.predicted for p in gains], [3, 30, 50])
    means = [100 * (1 - ones[0].means["Plain + post-hoc"] / ones[0].means["Vanilla"]), 25, 12.5]
    np.testing.assert_allclose([p.measured for p in gains], means)
    assert [ax.get_title()[:9] for ax in leverage.plot(gains).axes] == ["Theorem 1", "best mono"]
