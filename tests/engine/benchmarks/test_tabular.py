"""Comparison on tables: folds, weights, summary, a tiny run, and bad files."""

from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from datasets.tabular import FOLDS, TableDataset, load, stratified_folds
from engine.benchmarks import tabular, tabular_summary
from engine.runs.run import composed, run

TINY = OmegaConf.create(
    {
        "targets": {},
        "rows": None,
        "folds": 2,
        "trees": {"rounds": 5, "leaves": 4, "learning_rate": 0.1},
        "network": {"hidden": [], "iterations": 3},
        "balanced": {"components": 2, "sigmas": [1.0]},
        "ranges": 5,
    }
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        x = rng.normal(size=(240, 2))
        y = np.exp(x[:, 0]) + 0.1 * rng.normal(size=240)
        lines = [
            f"{a:.4f},{b:.4f},{c:.4f},{'red' if c > 0 else 'blue'}"
            for a, (b, c) in zip(y, x, strict=True)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["y,x1,x2,colour", *lines]))
    return tmp_path


def test_tiny_run_gives_table_tests_and_figure(folder: Path):
    paths = sorted(folder.glob("*.csv"))
    found = {p.stem: tabular.run_set(p, TINY, lambda message: None) for p in paths}
    table = tabular_summary.summary(found)
    assert set(table["rows"]) >= {"L2 (trees)", "DenseWeight (trees)", "Balanced (network)"}
    assert table["rows"]["L2 (trees)"]["bMAE"]["seeds"] == 2
    ranks = [cells["rank by RMSE"]["mean"] for cells in table["rows"].values()]
    assert sum(ranks) == pytest.approx(36)  # 1 + ... + 8 for any errors
    assert all(0 <= test["p"] <= 1 for test in table["tests"])
    assert table["foresight"]["Balanced (trees)"]["skewness"] is None  # of two sets
    tests, foreseen = (text.splitlines() for text in tabular_summary.pages(table).values())
    assert len(tests) == 2 + 6 * 4
    assert "| -, p = - |" in foreseen[2]  # no correlation of two sets
    assert list(tabular_summary.figures(found)) == ["gain"]
    assert found["one"]["leverage"]["gain"] < 1


def test_folds_are_stratified():
    labels = np.random.default_rng(0).exponential(size=101)
    fold = stratified_folds(labels, 5, seed=0)
    assert sorted(np.bincount(fold)) == [20, 20, 20, 20, 21]
    assert set(fold[np.argsort(labels)[-6:-1]]) == {0, 1, 2, 3, 4}
    assert (fold != stratified_folds(labels, 5, seed=1)).any()


def test_dense_weights_fall_with_the_density():
    weights = tabular.dense_weights(np.append(np.linspace(0, 1, 90), 5.0))
    assert weights.mean() == pytest.approx(1)
    assert weights[-1] == weights.max()


def test_load_reads_categories_and_targets(folder: Path):
    inputs, _ = load(folder / "one.csv")
    assert inputs.shape == (240, 3)
    assert set(inputs[:, 2]) == {0.0, 1.0}  # a category
    assert len(load(folder / "one.csv", rows=25)[1]) == 25
    assert load(folder / "one.csv", target="x1")[0].shape == (240, 3)


def numbers(count: int, first: str = "0") -> str:
    return "y,x\n" + "".join(f"{i if i else first},2\n" for i in range(count))


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("y,x\n" + "1,2\n" * 30, None, "all labels are 1"),
        (numbers(12), None, "at least 20 rows .* got 12"),
        ("y,x\n" + "tall,2\n" * 30, None, "expected numbers in column 'y'.* 'tall'"),
        (numbers(30), "z", "column 'z'; choose .* y, x"),
        (numbers(30).replace(",2", "").replace("y,x", "y"), None, "expected inputs"),
        (numbers(40, "inf"), None, r"bad\.csv: labels reach inf"),
        (numbers(40, "1e300"), None, r"bad\.csv: labels reach 1e\+300"),
    ],
)
def test_bad_files_are_named(text: str, target: str | None, message: str, tmp_path: Path):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "bad.csv", target)


def test_samples_without_a_label_are_dropped(tmp_path: Path):
    lines = [f"{i if i % 3 else 'NA'},{i if i % 5 else '?'}" for i in range(60)]
    (tmp_path / "gaps.csv").write_text("\n".join(["y,x", *lines]))
    inputs, labels = load(tmp_path / "gaps.csv")
    assert len(labels) == 40
    assert np.isfinite(inputs).all()


def test_splits_of_a_table_share_no_row_and_cover_it(folder: Path):
    labels = load(folder / "one.csv")[1]
    splits = {split: TableDataset(folder / "one.csv", split) for split in FOLDS}
    assert [len(splits[split]) for split in ("train", "val", "test")] == [144, 48, 48]
    together = np.concatenate([data.labels[:, 0] for data in splits.values()])
    np.testing.assert_array_equal(np.sort(together), np.sort(labels.astype(np.float32)))
    medians = [np.median(data.labels) for data in splits.values()]
    assert np.ptp(medians) < 0.1 * np.ptp(labels)  # evenly along the labels
    train = splits["train"].inputs.numpy()
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(train.std(0), 1, atol=1e-6)
    scaled = np.concatenate([TableDataset(folder / "one.csv", s, scale=10).labels for s in FOLDS])
    assert (scaled.min(), scaled.max()) == (0, 10)
    with pytest.raises(ValueError, match="Unknown split 'dev'; choose from test, val, train"):
        TableDataset(folder / "one.csv", "dev")
    with pytest.raises(ValueError, match=r"cannot be augmented; set features\.augment=false"):
        TableDataset(folder / "one.csv", "train", augment=True)


def test_a_network_trains_on_a_table(folder: Path, tmp_path: Path):
    words = (f"dataset.csv={folder / 'one.csv'}", "model.inputs=3", "trainer.epochs=2")
    own = (f"paths.outputs={tmp_path}", "log.replicates=4")
    bmc = ("loss/prior=batch", "+regularizer=ranksim", "protocol=extrapolation")
    for overrides in ((), bmc):
        done = run(composed("train", ["experiment=tabular/vanilla", *words, *own, *overrides]))
        assert 0 < done["metrics"]["test/bmae"] < 10
        events = EventAccumulator(done["folder"]).Reload()
        assert events.Tags()["images"] == ["labels"]  # no image of an input
