"""Fronts and their areas: against areas by hand, and through a whole table."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from engine.runs.run import composed
from engine.tables import tradeoff
from engine.tables.table import cell, render, write
from engine.tables.tradeoff import areas, front, heights


def test_a_front_has_what_no_other_point_beats():
    points = [(2.0, 5.0), (1.0, 7.0), (3.0, 5.0), (2.5, 6.0), (4.0, 1.0), (0.5, np.nan)]
    assert front(points).tolist() == [[1, 7], [2, 5], [4, 1]]


def test_heights_are_mean_heights():
    line = front([(0.0, 4.0), (2.0, 0.0)])
    level = front([(0.0, 4.0)])
    found = heights({"line": line, "level": level}, 0.0)
    assert found == pytest.approx({"line": 2.0, "level": 4.0})
    # to the median of the ends, 3; level after its last point: 2 on average over two thirds
    longer = front([(0.0, 4.0), (4.0, 3.0)])
    assert heights({"line": line, "longer": longer, "level": level}, 0.0) == pytest.approx(
        {"line": 4 / 3, "longer": 4 - 0.375, "level": 4.0}
    )
    # one that goes to the ends of the world moves the end for nobody
    far = front([(0.0, 4.0), (1e6, 0.0)])
    assert heights({"line": line, "far": far, "again": line}, 0.0)["line"] == pytest.approx(2.0)
    # a start that a point to its left beats
    assert heights({"a": front([(1.0, 4.0), (0.5, 2.0), (3.0, 1.0)])}, 1.0)["a"] == pytest.approx(
        (2 - 0.5 / 2.5 + 1) / 2
    )
    assert heights({"a": level}, 0.0) == {"a": 4.0}


def table(gain: float) -> tuple[dict, dict]:
    """Two stage-1 runs; the curve of A lies `gain` below that of B on every replicate."""
    points = {"Start": (5.0, 20.0), "A 1": (6.0, 15 - gain), "A 2": (8.0, 12 - gain)}
    points |= {"B 1": (6.0, 15.0), "B 2": (8.0, 12.0)}
    seeds = [(0, 0), (1, 1)]
    rows = {
        row: {
            name: cell([point[i] + 0.1 * s for s in (0, 1)])
            for i, name in enumerate(("bmae_many", "bmae_few"))
        }
        for row, point in points.items()
    }
    noise = np.random.default_rng(0).normal(0, 0.2, (2, 50))
    replicates = {
        row: {name: point[i] + noise[i] for i, name in enumerate(("bmae_many", "bmae_few"))}
        for row, point in points.items()
    }
    content = {
        "rows": rows,
        "seeds": dict.fromkeys(points, seeds),
        "tradeoff": {"x": "bmae_many", "y": "bmae_few", "start": "Start"},
        "curves": {name: {k: f"{name} {k}" for k in "12"} for name in "AB"},
    }
    return content, replicates


def test_areas_tell_methods_apart_and_are_in_the_table_the_smallest_first():
    content, replicates = table(gain=1.0)
    found = areas(content, replicates)
    # from 5 to 8: 20 to 15 over one, 15 to 12 over two
    expected = (17.5 + 2 * 13.5) / 3
    assert found["B"]["values"] == pytest.approx([expected, expected + 0.1])
    assert found["A"]["mean"] < found["B"]["mean"]
    assert found["A"]["against"]["B"]["verdict"] == "ahead"
    assert found["B"]["against"]["A"]["verdict"] == "behind"
    assert areas(*table(gain=0.0))["A"]["against"]["B"]["verdict"] == "tie"
    text = render({**content, "areas": found})
    lines = text[text.index("Area under the front") :].splitlines()
    assert [line[:5] for line in lines[2:4]] == ["| A |", "| B |"]
    assert lines[-1].startswith("| A | B | -")  # each pair once
    assert lines[-1].endswith("| ahead |")


CHANGES = {
    "nothing": {},
    "a value diverged": {"A 2": {"bmae_many": ["diverged", 1.0], "bmae_few": ["diverged", 1.0]}},
    "a value ran away": {"A 2": {"bmae_many": [200.0, 300.0], "bmae_few": [200.0, 300.0]}},
    "no such labels": {
        row: {"bmae_many": [None, None]} for row in ("Start", "A 1", "A 2", "B 1", "B 2")
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_figure_shows_what_was_measured(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    content, replicates = table(gain=1.0)
    for row, cells in CHANGES[change].items():
        content["rows"][row] |= {name: cell(values) for name, values in cells.items()}
    write({**content, "areas": areas(content, replicates)}, tmp_path, "made")
    shown, save = [], tradeoff.save
    monkeypatch.setattr(tradeoff, "save", lambda f, *at: shown.extend(f.values()) or save(f, *at))
    cfg = composed("table", ["table=imdb_wiki_tradeoff", "name=made"])
    posthoc = {"posthoc": {"of": "Start"}, "sweep": {"key": "strength"}}
    OmegaConf.update(cfg, "table.rows", {"B": posthoc}, merge=False)
    written = tradeoff.plot(cfg, {}, tmp_path / "figures")
    assert [path.name for path in written] == ["made_curves.png", "made_curves.pdf"]
    ax = shown[0].axes[0]
    lines = [line for line in ax.lines if line.get_linestyle() == "-"]
    points = {"nothing": 4, "no such labels": 0}.get(change, 3)
    assert sum(len(line.get_xdata()) for line in lines) == points
    marks = {str(line.get_label())[0]: line.get_marker() for line in lines}
    assert marks == ({"A": ".", "B": "None"} if points else {})  # B: one front of one model
    assert ax.get_ylim()[1] < 25  # the start is at 20


def test_knob_values_do_not_overlap_and_stay_inside():
    axes = Figure((4, 4)).subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    points = {"A": {"1.0": (0.2, 0.2), "2.5": (0.8, 0.8), "3": (2.0, 0.5)}, "B": {"4": (0.2, 0.2)}}
    tradeoff.label_knobs(points, axes)
    assert [text.get_text() for text in axes.texts] == ["1", "2.5"]
