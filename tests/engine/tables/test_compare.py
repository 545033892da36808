"""A table finds its runs, runs what is missing, and puts the paper's numbers beside them."""

import re
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from engine.runs import identity
from engine.runs.run import CONFIGS, composed, first_stage, run
from engine.tables import compare as comparison
from engine.tables import cost
from engine.tables.intervals import over_seeds
from metrics.report import bootstrap_weights
from tests import process
from tests.engine import tiny

TABLES = sorted(
    path.stem for path in (CONFIGS / "table").glob("*.yaml") if "rows" in OmegaConf.load(path)
)
ROWS = {
    "columns": ["bmae", "mae"],
    "rows": {
        "Vanilla": {"experiment": "imdb_wiki/vanilla", "seeds": 1},
        "GAI": {"experiment": "imdb_wiki/gai", "overrides": ["components=1"]},
    },
    "extras": {"Focal": {"experiment": "imdb_wiki/focal"}},
    "paper": {"Vanilla": [13.92, 8.06]},
}


@pytest.fixture
def small(faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row's config becomes a tiny one."""

    def small(name: str, overrides: list[str]):
        experiment, *others = overrides
        return tiny.config(faces, tmp_path, experiment.removeprefix("experiment="), *others)

    monkeypatch.setattr(comparison, "composed", small)


@pytest.mark.usefixtures("small")
def test_rows_are_means_over_seeds(faces: Path, tmp_path: Path):
    said = []
    table = comparison.compare(OmegaConf.create(ROWS), 2, [], extras=False, say=said.append)
    assert list(table["rows"]) == ["Vanilla", "GAI"]
    assert table["extras"] == {}
    assert table["run_seconds"] > 0
    assert table["rows"]["Vanilla"]["bmae"]["paper"] == 13.92
    assert table["rows"]["Vanilla"]["bmae"]["seeds"] == 1
    entry = table["rows"]["GAI"]["mae"]
    single = [
        run(tiny.config(faces, tmp_path, "imdb_wiki/gai", "components=1", f"seed={seed}"))
        for seed in (0, 1)
    ]
    values = [done["metrics"]["test/mae"] for done in single]
    assert entry["mean"] == pytest.approx(statistics.mean(values))
    assert entry["std"] == pytest.approx(statistics.stdev(values))
    assert entry["paper"] is None
    assert said[::2] == ["Vanilla, seed 0: running", "GAI, seed 0: running", "GAI, seed 1: running"]
    assert all(re.fullmatch(r".*: done in \d+ s", text) for text in said[1::2])

    said.clear()
    again = comparison.compare(OmegaConf.create(ROWS), 2, [], extras=True, say=said.append)
    assert again["rows"] == table["rows"]
    assert [text.endswith("found") for text in said] == [True, True, True, *[False] * 4]
    assert list(again["extras"]) == ["Focal"]


@pytest.mark.usefixtures("small")
def test_rows_are_compared_with_the_baselines(faces: Path, tmp_path: Path):
    benchmark = {
        "highlight": {"baseline": ["Vanilla"], "reweighted": ["Focal", "absent"]},
        "columns": {"bmae": {"title": "bMAE", "better": "lower"}},
    }
    table = comparison.compare(
        OmegaConf.create(ROWS), 3, [], True, lambda text: None, benchmark=benchmark
    )
    assert table["seeds"] == {
        "Vanilla": [(0, 0)],
        "GAI": [(0, 0), (0, 1), (0, 2)],
        "Focal": [(0, 0), (0, 1), (0, 2)],
    }
    assert {row: list(others) for row, others in table["against"].items()} == {
        "Vanilla": ["Focal"],
        "GAI": ["Vanilla", "Focal"],
        "Focal": ["Vanilla"],
    }
    found = table["against"]["GAI"]["Focal"]["bmae"]
    ours, theirs = (
        table[s][row]["bmae"]["values"] for s, row in (("rows", "GAI"), ("extras", "Focal"))
    )
    assert found["pairs"] == 3
    assert found["mean"] == pytest.approx(np.mean(np.subtract(ours, theirs)))
    # all three heads build on one Vanilla
    by_seed = {
        (0, i): value - table["rows"]["Vanilla"]["bmae"]["mean"] for i, value in enumerate(ours)
    }
    assert table["against"]["GAI"]["Vanilla"]["bmae"]["seeds"] == over_seeds(by_seed)
    # a draw of the test set, drawn again by hand
    pred, target = (
        np.load(Path(table["runs"]["Vanilla"][0]) / "predictions.npz")[f"test_{name}"]
        for name in ("pred", "target")
    )
    often = bootstrap_weights(len(target), 1000)[7].numpy().astype(int)
    expected = np.abs(pred - target).repeat(often, axis=0).mean()
    assert table["draws"]["Vanilla"]["mae"][7] == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("small")
def test_heads_are_trained_on_every_stage_one():
    rows = OmegaConf.create(ROWS)
    rows.rows.Vanilla.seeds = 2
    benchmark = {"highlight": {"baseline": ["Vanilla"]}}
    table = comparison.compare(
        rows, 2, [], False, lambda text: None, benchmark=benchmark, stage1_seeds=2
    )
    assert table["seeds"]["Vanilla"] == [(0, 0), (1, 1)]
    assert table["seeds"]["GAI"] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    first, second = table["rows"]["Vanilla"]["mae"]["values"]
    values = table["rows"]["GAI"]["mae"]["values"]
    assert len(set(values)) == 4
    # what is independent is a stage 1: two differences
    by_stage = [np.mean(values[:2]) - first, np.mean(values[2:]) - second]
    found = table["against"]["GAI"]["Vanilla"]["mae"]
    assert found["pairs"] == 4
    assert found["mean"] == pytest.approx(np.mean(by_stage))
    assert found["seeds"] == pytest.approx(over_seeds({(i, 0): by_stage[i] for i in (0, 1)}))


def test_a_chosen_sweep_is_a_row_and_its_values():
    sweep = {
        "key": "loss.prior.power",
        "among": [0.5, 1.0],
        "choose": {"settings": {"seed": 0, "dataset.size": 8}},
    }
    row = {"experiment": "imdb_wiki/histogram", "overrides": ["choose=null"], "sweep": sweep}
    rows = comparison.expanded(OmegaConf.create({"Histogram": row}))
    assert list(rows) == ["Histogram", "Histogram 0.5", "Histogram 1.0"]
    chosen, half, _ = (comparison.configs(one, 1, ["preset=laptop"])[0] for one in rows.values())
    settings = {"seed": 0, "dataset.size": 8}
    assert chosen.choose == {"key": "loss.prior.power", "among": [0.5, 1.0], "settings": settings}
    assert (half.choose, half.loss.prior.power) == (None, 0.5)
    assert comparison.curves(rows) == {
        "Histogram": {"0.5": "Histogram 0.5", "1.0": "Histogram 1.0"}
    }


def test_a_row_may_choose_its_knob():
    choose = {"key": "loss.weights.power", "among": [0.5, 1.0], "settings": {"seed": 0}}
    row = {"experiment": "imdb_wiki/rrt", "overrides": ["select.metric=bmae"], "choose": choose}
    rows = comparison.expanded(OmegaConf.create({"RRT": row}))
    (one,) = comparison.configs(rows["RRT"], 1, ["preset=laptop"])
    assert (one.choose, one.select.metric) == (choose, "bmae")
    assert list(rows) == ["RRT"]


@pytest.mark.usefixtures("small", "forked_workers")
def test_side_by_side_gives_the_same(faces: Path, tmp_path: Path):
    cached = ["components=1", "features=cached", "features.views=1"]
    rows = OmegaConf.create(ROWS)
    rows.rows.GAI.overrides = cached
    said = []
    table = comparison.compare(rows, 3, [], False, said.append, jobs=2)
    assert sum(text.endswith("running") for text in said) == 4
    assert {text.split(":")[0] for text in said} == {
        "Vanilla, seed 0",
        *(f"GAI, seed {seed}" for seed in range(3)),
    }
    shutil.rmtree(tmp_path / "imdb_wiki" / "gai")
    again = comparison.compare(rows, 3, [], False, said.append)
    # one thread or two
    assert again["rows"]["GAI"]["mae"]["mean"] == pytest.approx(table["rows"]["GAI"]["mae"]["mean"])


@pytest.mark.usefixtures("small")
def test_all_runs_that_fail_are_named_and_the_others_are_made(tmp_path: Path):
    rows = OmegaConf.create(ROWS)
    for name in ("gai", "focal"):
        (tmp_path / "imdb_wiki").mkdir(exist_ok=True)
        (tmp_path / "imdb_wiki" / name).write_text("a file where a folder should be")
    said: list[str] = []
    with pytest.raises(RuntimeError, match=r"(?s)2 of 3 runs failed.*GAI, seed 0: .*Focal, seed 0"):
        comparison.compare(rows, 1, [], True, said.append)
    assert [text for text in said if text.endswith("failed")] == [
        "GAI, seed 0: failed",
        "Focal, seed 0: failed",
    ]
    assert any(text.startswith("Vanilla, seed 0: done") for text in said)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_stage_one_that_fails_is_not_tried_again_for_every_head(
    jobs: int, monkeypatch: pytest.MonkeyPatch
):
    heads = {
        f"Head {i}": OmegaConf.create({"rerun": False, "features": {"mode": "cached"}, "seed": i})
        for i in range(3)
    }
    stage1, tried = OmegaConf.create({"seed": 0}), []

    def fails(cfg):
        tried.append(cfg.seed)
        raise OSError("the disk is full")

    monkeypatch.setattr(comparison, "first_stage", lambda cfg: stage1)
    monkeypatch.setattr(comparison, "result", lambda cfg: None)
    monkeypatch.setattr(comparison, "run", fails)
    with pytest.raises(RuntimeError, match=r"3 of 3 runs failed(?s:.)*Head 0; Head 1; Head 2: the"):
        comparison.run_all(heads, jobs, lambda text: None)
    assert tried == [0]


@pytest.mark.parametrize("preset", ["paper", "official", "laptop"])
def test_the_vanilla_row_is_the_stage_one_of_the_others(preset: str):
    said = [f"preset={preset}", "paths=mini", "dataset=utkface"]
    vanilla = composed("train", ["experiment=imdb_wiki/vanilla", *said])
    stage1 = first_stage(composed("train", ["experiment=imdb_wiki/bmc", "seed=2", *said]))
    assert stage1 is not None
    assert identity.parts(stage1) == identity.parts(vanilla)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_composes(name: str):
    """Rows name experiments and overrides that exist, and the paper's rows have all columns."""
    table = composed("table", [f"table={name}"]).table
    rows = comparison.expanded(table.rows)
    for title, row in rows.items():
        found = comparison.configs(row, 1, ["preset=laptop", "paths=mini"])
        assert found or "cited" in title
    for title, numbers in table.get("paper", {}).items():
        assert title in rows
        assert len(numbers) == len(table.columns)


def test_cost_of_a_step(faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    forks = process.context()
    monkeypatch.setattr(cost.multiprocessing, "get_context", lambda _: forks)
    cfg = tiny.config(faces, tmp_path, "imdb_wiki/bmc")
    ours = np.ones(2**27)  # a gigabyte, which is not the step's
    measured = cost.measure(cfg, iterations=2)
    assert measured["seconds"] > 0
    assert 10 < measured["memory_mb"] < ours.nbytes / 2**20


def test_a_column_that_is_not_reported_is_refused_before_anything_is_run(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("engine.tables.compare.run_all", lambda *_: pytest.fail("ran"))
    rows = {"Vanilla": {"experiment": "imdb_wiki/vanilla"}}
    table = OmegaConf.create({"columns": ["bmae", "bmae_fw"], "rows": rows})
    told = ["preset=laptop", *tiny.tiny(faces, tmp_path)]
    with pytest.raises(ValueError, match=r"'bmae_fw' is not reported.*Did you mean bmae_few"):
        comparison.compare(table, 1, told, False, print)
