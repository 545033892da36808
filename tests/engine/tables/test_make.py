"""A table is made from its config: found or run, named, published, with the paper's numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine.runs.run import composed
from engine.tables import make
from engine.tables.compare import expanded
from engine.tables.table import cell
from engine.tables.tradeoff import areas
from scripts.table import without
from tests.engine.tables.test_tradeoff import table
from tests.engine.tiny import tiny


@pytest.mark.parametrize(
    ("name", "dataset", "file", "cited"),
    [
        ("imdb_wiki", "dataset=wiki", "wiki", True),
        ("imdb_wiki", "dataset=utkface", "utkface", False),
        ("imdb_wiki_gmm", "dataset=utkface", "utkface_gmm", False),
        *((name, "++dataset.csv=mine.csv", name, True) for name in ("nyud2", "ihmr", "stsb")),
    ],
)
def test_the_benchmark_states_whose_numbers_are_cited(
    name: str, dataset: str, file: str, cited: bool, monkeypatch: pytest.MonkeyPatch
):
    cfg = composed("table", [f"table={name}", "paths=mini", dataset])
    monkeypatch.setattr(make, "compare", lambda *_: pytest.fail("stop"))
    with pytest.raises(pytest.fail.Exception):
        make.make(cfg, [])
    assert bool(cfg.table.paper) == cited
    assert cfg.name == f"{file}_mini"


@pytest.mark.filterwarnings("ignore:.*held-out:UserWarning")  # twelve faces are few
def test_a_table_is_written_with_the_papers_numbers_and_published_with_predictions(
    faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    overrides = ["preset=laptop", "paths=mini", f"paths.outputs={tmp_path}"]
    own = [
        "table=imdb_wiki_sigma",
        "seeds=2",
        "trust=[tests]",
        "rows=['Joint.','Fix. (sigma = 6)']",
        *overrides,
    ]
    cfg = composed("table", own)
    cfg.add = {
        "Vanilla": {"experiment": "imdb_wiki/vanilla", "seeds": 1},
        "Post-hoc": {"posthoc": {"of": "Vanilla", "sigma": 5.0}},
    }
    paths = make.make(cfg, [*overrides, *tiny(faces, tmp_path)])
    endings = (".md", ".csv", ".tex", ".json", "_draws.npz")
    assert [path.name for path in paths] == [f"imdb_wiki_sigma_mini{ending}" for ending in endings]
    shown = capsys.readouterr()
    assert "Joint." in shown.out
    assert "Joint., seed 1: done in" in shown.err
    assert all("12.85" in path.read_text() for path in paths[:4])
    content = json.loads(paths[3].read_text())
    entry = content["rows"]["Fix. (sigma = 6)"]["bmae"]
    assert (entry["seeds"], entry["paper"]) == (2, 12.85)
    assert {"commit", "command", "machine", "seconds", "versions"} <= set(content["meta"])

    monkeypatch.setattr(make, "RESULTS", tmp_path / "results")
    readme, cfg.publish = tmp_path / "README.md", True
    cfg.rows, cfg.add = None, None  # have been applied
    readme.write_text(f"<!-- table {cfg.name} -->\nstale\n<!-- end {cfg.name} -->\n")
    published = make.make(cfg, [*overrides, *tiny(faces, tmp_path)])
    assert published[0].read_text() in readme.read_text()
    assert "stale" not in readme.read_text()
    assert published[-1].name == "imdb_wiki_sigma_mini_predictions.npz"
    stored = dict(np.load(published[-1]))
    runs = [f"{row}/0-{seed}" for row in ("Joint.", "Fix. (sigma = 6)") for seed in (0, 1)]
    names = {f"{run}/{split}" for run in (*runs, "Vanilla/0-0") for split in ("val", "test")}
    assert stored.keys() == {"val", "test", *names}  # without the post-hoc row
    for name, seed in (("Joint.", 1), ("Vanilla", 0)):  # the table follows from the predictions
        error = np.abs(stored[f"{name}/0-{seed}/test"] - stored["test"]).mean()
        expected = content["rows"][name]["mae"]["values"][seed]
        assert error == pytest.approx(expected, abs=2**-12 * 256)  # half precision below 256


@pytest.mark.parametrize(
    ("table", "words", "rows"),
    [
        ("imdb_wiki", ["rows=[RRT+LDS,Balanced L1]"], ["RRT+LDS", "Balanced L1"]),
        ("imdb_wiki", ["rows=[RRT,BMC]", "add={Mine:imdb_wiki/gai}"], ["RRT", "BMC", "Mine"]),
        ("imdb_wiki", ["rows=[RRT,Mine]", "add={Mine:imdb_wiki/gai}"], ["RRT", "Mine"]),
        ("imdb_wiki", ["~table.rows.RRT+LDS", "rows=[RRT,RRT+LDS,GAI]"], ["RRT", "GAI"]),
        ("imdb_wiki_gmm", ["~table.rows.K=1"], ["K=2", "K=4", "K=128"]),
        ("imdb_wiki_gmm", ["rows=['K=4','K=1']"], ["K=1", "K=4"]),
        ("imdb_wiki_gmm", ["rows=[K]"], ["K=1", "K=2", "K=4", "K=128"]),
    ],
)
def test_rows_and_values_of_sweeps_are_selected_removed_and_added(
    table: str, words: list[str], rows: list[str]
):
    cfg = composed("table", [f"table={table}", *without(words)])
    make.select_rows(cfg)
    assert list(cfg.table.rows) == rows
    if "Mine" in rows:
        assert cfg.table.rows.Mine == {"experiment": "imdb_wiki/gai"}
    if table == "imdb_wiki_gmm":
        again = expanded(cfg.table.rows)
        assert list(again) == rows
        assert again[rows[0]].changes == {"components": int(rows[0][2:])}


@pytest.mark.parametrize(
    "rows", [["rows=[BMC,Mine]", "add={Mine:imdb_wiki/rrt}"], ["rows=[Vanilla]"]]
)
def test_a_table_without_its_baseline_or_with_nothing_else(
    rows: list[str], faces: Path, tmp_path: Path
):
    overrides = ["preset=laptop", "paths=mini", f"paths.outputs={tmp_path}"]
    own = ["table=imdb_wiki", "seeds=1", "trust=[tests]", *rows, *overrides]
    cfg = composed("table", own)
    paths = make.make(cfg, [*overrides, *tiny(faces, tmp_path)])
    figures = {path.stem for path in paths if path.suffix == ".png"}
    assert figures == {"imdb_wiki_mini_labels", "imdb_wiki_mini_predictions"}


def test_overrides_for_the_runs_are_passed_on():
    own = ["preset=laptop", "paths.data=a", "~trainer.clip"]
    assert make.passed_on(["table=imdb_wiki", *own, "seeds=1", "name=b"]) == own


@pytest.mark.parametrize("swept", [True, False])
def test_a_value_of_a_sweep_may_diverge(
    swept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The curve is plotted without it; a row of the table that diverged is an error."""
    content, replicates = table(gain=1.0)
    content["curves"]["A"] = {"1": "A 1", "2": "A 2"} if swept else {"1": "A 1"}
    content["rows"]["A 2"] = {name: cell(["diverged"]) for name in content["rows"]["A 2"]}
    content["areas"] = areas(content, replicates)
    run = {"folder": str(tmp_path), "seconds": 1.0}
    done = {"A 1": [run], "A 2": [{**run, "divergence": "NaN"}]}
    monkeypatch.setattr(make, "compare", lambda *_: (content, done, replicates))
    cfg = composed(
        "table", ["table=imdb_wiki_tradeoff", f"paths.outputs={tmp_path}", "name=utkface_tradeoff"]
    )
    if swept:
        assert tmp_path / "tables/figures/utkface_tradeoff_curves.png" in make.make(cfg, [])
    else:
        with pytest.raises(FloatingPointError, match="these rows diverged: A 2"):
            make.make(cfg, [])
