"""A table finds its runs, runs what is missing, and puts the paper's numbers next to them."""

import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from engine.runs import identity, run_all
from engine.runs.run import CONFIGS, composed, first_stage, run
from engine.runs.run_all import Event
from engine.tables import compare as comparison
from engine.tables import make
from engine.tables.intervals import over_seeds
from metrics.report import bootstrap_weights
from tests import process
from tests.engine import tiny

TABLES = sorted(
    path.stem for path in (CONFIGS / "table").glob("*.yaml") if "rows" in OmegaConf.load(path)
)
FOUND, STARTED, DONE, FAILED = "found", "running", "done", "failed"
ROWS = {
    "columns": ["bmae", "mae"],
    "rows": {
        "Vanilla": {"experiment": "imdb_wiki/vanilla", "seeds": 1},
        "GAI": {"experiment": "imdb_wiki/gai", "overrides": ["components=1"]},
    },
    "extras": {"Focal": {"experiment": "imdb_wiki/focal"}},
    "paper": {"Vanilla": [13.92, 8.06]},
}
BENCHMARK = {
    "highlight": {"baseline": ["Vanilla"], "reweighted": ["Focal", "absent"]},
    "columns": {"bmae": {"title": "bMAE", "better": "lower"}},
}


def config(**settings: object) -> DictConfig:
    default = {"seeds": 1, "stage1_seeds": 1, "extras": False, "jobs": 1, "benchmark": BENCHMARK}
    return OmegaConf.create({"table": ROWS, **default, **settings})


def ignore(event: Event) -> None:
    pass


@pytest.fixture
def small(faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row's config becomes a tiny one."""

    def small(name: str, overrides: list[str]):
        experiment, *others = overrides
        return tiny.config(faces, tmp_path, experiment.removeprefix("experiment="), *others)

    monkeypatch.setattr(comparison, "composed", small)


@pytest.mark.usefixtures("small")
def test_rows_are_means_over_seeds_and_compared_with_the_baselines(faces: Path, tmp_path: Path):
    events: list[Event] = []
    cfg = config(seeds=2, stage1_seeds=2)
    cfg.table.rows.Vanilla.seeds = 2
    table, done, replicates = comparison.compare(cfg, [], events.append)
    assert table["extras"] == {}
    labels = ["Vanilla, seed 0", "Vanilla, seed 1", "GAI, seed 0", "GAI, seed 1"]
    labels += [f"GAI, seed {seed} on stage 1 of seed 1" for seed in (0, 1)]
    assert [event[:2] for event in events] == [(x, s) for x in labels for s in (STARTED, DONE)]
    assert all(event.seconds > 0 for event in events[1::2])
    heads = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert table["seeds"] == {"Vanilla": [(0, 0), (1, 1)], "GAI": heads}
    first, second = table["rows"]["Vanilla"]["mae"]["values"]
    entry = table["rows"]["GAI"]["mae"]
    gai = "imdb_wiki/gai", "components=1"
    single = [run(tiny.config(faces, tmp_path, *gai, f"seed={seed}")) for seed in (0, 1)]
    values = entry["values"]
    assert values[:2] == [done["metrics"]["test/mae"] for done in single]
    assert len(set(values)) == 4
    assert entry["mean"] == pytest.approx(statistics.mean(values))
    assert entry["std"] == pytest.approx(statistics.stdev(values))
    assert entry["paper"] is None
    assert table["rows"]["Vanilla"]["bmae"]["paper"] == 13.92
    # stage-1 runs are independent: two differences
    by_stage = [np.mean(values[:2]) - first, np.mean(values[2:]) - second]
    found = table["against"]["GAI"]["Vanilla"]["mae"]
    assert found["pairs"] == 4
    assert found["mean"] == pytest.approx(np.mean(by_stage))
    assert found["seeds"] == pytest.approx(over_seeds({(i, 0): by_stage[i] for i in (0, 1)}))
    # a bootstrap replicate of the test set, computed by hand, averaged over seeds
    stored = [np.load(Path(one["folder"]) / "predictions.npz") for one in done["Vanilla"]]
    errors = [np.abs(one["test_pred"] - one["test_target"]) for one in stored]
    often = bootstrap_weights(len(errors[0]), 1000)[7].numpy().astype(int)
    expected = np.mean([error.repeat(often, axis=0).mean() for error in errors])
    assert replicates["Vanilla"]["mae"][7] == pytest.approx(expected, rel=1e-6)

    events.clear()
    cfg.extras, cfg.stage1_seeds = True, 1
    again, *_ = comparison.compare(cfg, [], events.append)
    assert again["rows"]["Vanilla"] == table["rows"]["Vanilla"]
    assert [event.state for event in events] == [FOUND] * 4 + [STARTED, DONE] * 2
    pairs = {row: list(others) for row, others in again["against"].items()}
    assert pairs == {"Vanilla": ["Focal"], "GAI": ["Vanilla", "Focal"], "Focal": ["Vanilla"]}


@pytest.mark.parametrize(
    "overrides",
    [
        ["preset=paper", "dataset=utkface"],
        ["preset=official", "trainer.epochs=1"],
        ["preset=laptop", "optim.optimizer.lr=1e-5", "trainer.batch_size=8", "dataset=wiki"],
    ],
)
def test_the_vanilla_row_is_the_stage1_run_of_the_others(overrides: list[str]):
    rows = [{"experiment": f"imdb_wiki/{name}", "seeds": 3} for name in ("vanilla", "bmc")]
    vanilla, bmc = (comparison.configs(row, 1, ["paths=mini", *overrides]) for row in rows)
    stage1 = first_stage(bmc[2])
    assert stage1 is not None
    assert identity.parts(stage1) == identity.parts(vanilla[0])
    assert comparison.configs(rows[1], 1, ["components=4"])[0].components == 4


def test_a_row_can_choose_or_sweep_its_knob():
    settings = {"seed": 0, "dataset.size": 8}
    choose = {"key": "loss.weights.power", "among": [0.5, 1.0], "settings": settings}
    rrt = {"experiment": "imdb_wiki/rrt", "overrides": ["select.metric=bmae"], "choose": choose}
    sweep = {"key": "loss.prior.power", "among": [0.5, 1.0], "choose": {"settings": settings}}
    histogram = {"experiment": "imdb_wiki/histogram", "overrides": ["choose=null"], "sweep": sweep}
    rows = comparison.expanded(OmegaConf.create({"RRT": rrt, "Histogram": histogram}))
    assert list(rows) == ["RRT", "Histogram", "Histogram 0.5", "Histogram 1.0"]
    made = (comparison.configs(one, 1, ["preset=laptop"])[0] for one in rows.values())
    single, chosen, half, _ = made
    assert (single.choose, single.select.metric) == (choose, "bmae")
    assert chosen.choose == {"key": "loss.prior.power", "among": [0.5, 1.0], "settings": settings}
    assert (half.choose, half.loss.prior.power) == (None, 0.5)
    curve = {"0.5": "Histogram 0.5", "1.0": "Histogram 1.0"}
    assert comparison.curves(rows) == {"Histogram": curve}


@pytest.mark.usefixtures("small", "forked_workers")
def test_parallel_runs_give_the_same_and_a_failed_run_is_named(tmp_path: Path):
    cfg = config(seeds=2, jobs=2, extras=True)
    cfg.table.rows.GAI.overrides = ["components=1", "features=cached", "features.views=1"]
    (tmp_path / "imdb_wiki").mkdir()
    (tmp_path / "imdb_wiki" / "focal").write_text("a file where a folder should be")
    events: list[Event] = []
    with pytest.raises(
        RuntimeError, match=r"(?s)2 of 5 runs failed.*Focal, seed 0: .*Focal, seed 1: "
    ):
        comparison.compare(cfg, [], events.append)
    done = {"Vanilla, seed 0", "GAI, seed 0", "GAI, seed 1"}
    failed = {"Focal, seed 0", "Focal, seed 1"}
    for state, labels in ((STARTED, done | failed), (DONE, done), (FAILED, failed)):
        assert {event.label for event in events if event.state == state} == labels
    cfg.extras = False
    table, *_ = comparison.compare(cfg, [], ignore)
    shutil.rmtree(tmp_path / "imdb_wiki" / "gai")
    cfg.jobs = 1
    again, *_ = comparison.compare(cfg, [], ignore)
    # one thread or two
    assert again["rows"]["GAI"]["mae"]["mean"] == pytest.approx(table["rows"]["GAI"]["mae"]["mean"])


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_stage1_run_is_not_tried_for_every_head(
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

    monkeypatch.setattr(run_all, "first_stage", lambda cfg: stage1)
    monkeypatch.setattr(run_all, "result", lambda cfg: None)
    monkeypatch.setattr(run_all, "run", fails)
    with pytest.raises(RuntimeError, match=r"3 of 3 runs failed(?s:.)*Head 0; Head 1; Head 2: the"):
        run_all.run_all(heads, jobs, ignore)
    assert tried == [0]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_composes(name: str):
    """Rows name experiments and overrides that exist, and the paper's rows have all columns."""
    table = composed("table", [f"table={name}"]).table
    rows = comparison.expanded(table.rows)
    last = {row.get("curve", title): title for title, row in rows.items()}  # one value of a curve
    for title, row in rows.items():
        if title != last[row.get("curve", title)]:
            continue
        found = comparison.configs(row, 1, ["preset=laptop", "paths=mini"])
        assert found or "cited" in title or row.posthoc.of in rows
    for title, numbers in table.get("paper", {}).items():
        assert title in rows
        assert len(numbers) == len(table.columns)


def test_cost_of_a_step(faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    forks = process.context()
    monkeypatch.setattr(make.multiprocessing, "get_context", lambda _: forks)
    cfg = tiny.config(faces, tmp_path, "imdb_wiki/bmc")
    ours = np.ones(2**27)  # a gigabyte, which is not the step's
    measured = make.measure(cfg, iterations=2)
    assert measured["seconds"] > 0
    assert 10 < measured["memory_mb"] < ours.nbytes / 2**20
