"""Depth maps in the engine: pixels are samples, targets are cached, evaluation streams."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from datasets import nyud2
from engine.benchmarks.depth import Maps, plot
from engine.evaluation.evaluate import evaluate, finished_run
from engine.features import cache as features
from engine.runs.run import composed, run
from engine.speed.timing import peak
from engine.training import build
from engine.training.batches import evaluation_loader
from engine.training.task import Dense
from losses import BNI, BalancedLoss, Bins, Flat, Gaussian, Histogram, WeightedLoss
from metrics import DepthMetrics, depth_report
from tests.engine.tiny import TinyMaps, depth_config

CPU = Fabric(accelerator="cpu", devices=1)


def batch(n: int = 2) -> dict:
    g = torch.Generator().manual_seed(0)
    target = 0.3 + 9.7 * torch.rand(n, 1, 28, 38, generator=g)
    target[:, :, 0] = 0
    return {"input": torch.randn(n, 3, 228, 304, generator=g), "target": target}


def dense(loss, weights=None, outputs: int = 1) -> Dense:
    torch.manual_seed(0)
    return Dense(TinyMaps(outputs), loss, nearest=0.7, bins_per_unit=10, weights=weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_the_mean_over_pixels_from_0_7_m_on(weighted: bool):
    table = torch.arange(100.0) + 1 if weighted else torch.ones(100)
    table[50] = torch.nan  # a bin without training pixels
    loss = WeightedLoss("mse") if weighted else BalancedLoss(Gaussian(1.0), Flat())
    task, data = dense(loss, table if weighted else None), batch()
    value, rows = task(data)
    pred, target = task.model(data["input"]).detach(), data["target"]
    errors = [
        float(table.nan_to_num(nan=1.0)[int(t * 10)] * (p - t) ** 2)
        for p, t in zip(pred.flatten(), target.flatten(), strict=True)
        if t >= 0.7
    ]
    assert len(rows) == len(errors)
    assert value.item() == pytest.approx(float(np.mean(errors)), rel=1e-5)  # float32 sums
    assert ("nll" in task.terms(data, rows)) != weighted


def test_a_histogram_is_decoded_before_it_is_upsampled():
    likelihood = Histogram(np.linspace(0.6, 10, 48), soft=0.3, point="mean")
    prior = Bins(np.linspace(0.7, 9.9, 47), np.ones(47))
    task, data = dense(BalancedLoss(likelihood, prior), outputs=47), batch()
    loss, rows = task(data)
    assert rows.shape[1] == 47
    assert torch.isfinite(loss)
    pred = task.predict({**data, "target": torch.ones(2, 1, 228, 304)})
    assert pred.shape == (2, 1, 228, 304)
    mass = torch.softmax(task.model(data["input"]), 1)
    centers = torch.linspace(0.7, 9.9, 47)[:, None, None]
    torch.testing.assert_close(pred[:, 0, 0, 0], (mass * centers).sum(1)[:, 0, 0])  # a corner


def test_priors_and_weights_are_fitted_to_the_counted_pixels(rooms: Path, tmp_path: Path):
    train = build.dataset(depth_config(rooms, tmp_path), "train")
    counts = train.label_counts
    bni = build.task(depth_config(rooms, tmp_path, "nyud2/bni"), train.labels, None, counts)
    filled = counts.astype(float)
    nearest = np.flatnonzero(counts)[0]
    filled[:nearest] = filled[nearest]
    expected = torch.tensor(filled[filled > 0] / filled.sum(), dtype=torch.float32)
    torch.testing.assert_close(bni.loss.prior.weights.float(), expected)  # pyright: ignore
    lds = depth_config(rooms, tmp_path, "nyud2/inverse")
    weights = build.task(lds, train.labels, None, counts).weights
    seen = counts > 0
    mean = (weights.numpy()[seen] * counts[seen]).sum() / counts.sum()  # pyright: ignore
    assert mean == pytest.approx(1, rel=1e-5)


def test_held_out_scenes_share_the_feature_table(
    rooms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(nyud2, "BLOCK", 2)
    tables = {}
    for held in ("null", "0.25"):
        change = f"dataset.validation={held}"
        cfg = depth_config(rooms, tmp_path, "nyud2/bni", "features=cached", change)
        splits = {s: build.dataset(cfg, s) for s in ("train", "val", "test")}
        splits = {s: split for s, split in splits.items() if len(split)}
        torch.manual_seed(0)
        tables[held] = features.tables(build.make_fabric(cfg), cfg, TinyMaps(), splits, None)
    assert len(list((tmp_path / "features").iterdir())) == 1
    part, whole = tables["0.25"]["train"], tables["null"]["train"]
    keys = [(1, 5), (1, 0)]
    assert (len(part), len(whole)) == (6, 8)
    for name in ("input", "target"):
        assert torch.equal(part.__getitems__(keys)[name], whole.__getitems__(keys)[name])
    assert not torch.equal(
        part.__getitems__([(0, 0)])["target"], part.__getitems__([(1, 0)])["target"]
    )
    val = tables["0.25"]["val"].__getitems__([(0, 1)])
    assert val["mask"].shape == (1, 1, 228, 304)


def test_evaluation_memory_does_not_grow_with_the_test_set():
    task = dense(BNI(Bins([1.0, 5.0], [0.5, 0.5])))
    mask = torch.zeros(1, 228, 304, dtype=torch.bool)
    mask[:, ::16, ::16] = True
    frame = {"input": torch.zeros(3, 228, 304), "target": torch.full((1, 228, 304), 5.0)}

    def evaluated(size: int) -> tuple[dict, dict]:
        frames: Any = [{**frame, "mask": mask, "meta": {"index": i}} for i in range(size)]
        loader = evaluation_loader(frames, 2, 0, False, 0, 1)
        return evaluate(CPU, task, loader, DepthMetrics())

    peaks = [peak(partial(evaluated, size)) for size in (4, 24)]
    assert peaks[1] < 1.1 * peaks[0]  # six times the maps
    report, kept = evaluated(4)
    assert kept == {}
    assert report["rmse"] > 0


def test_evaluation_equals_the_report_on_all_pixels(rooms: Path, tmp_path: Path):
    done = run(depth_config(rooms, tmp_path, "nyud2/bni", "log.figures=true"))
    assert EventAccumulator(done["folder"]).Reload().Tags()["images"] == ["samples"]
    cfg, task, _ = finished_run(Path(done["folder"]), trust=["tests"])
    items = [build.dataset(cfg, "test")[i] for i in range(3)]
    stacked = torch.utils.data.default_collate(items)
    with torch.no_grad():
        pred = task.predict(stacked)
    report = depth_report(pred, stacked["target"], stacked["mask"])
    assert done["metrics"]["test/rmse_few"] == pytest.approx(report["rmse_few"], rel=1e-5)


def test_figures_of_finished_runs(rooms: Path, tmp_path: Path):
    runs = {
        row: [run(depth_config(rooms, tmp_path, f"nyud2/{name}", "features=cached"))["folder"]]
        for row, name in (("Vanilla", "vanilla"), ("GAI", "gai"))
    }
    cfg = composed("table", ["table=nyud2", "name=nyud2_tiny", "trust=[tests]"])
    paths = plot(cfg, runs, tmp_path / "figures")
    assert {path.name for path in paths} == {
        f"nyud2_tiny_{kind}.{ending}" for kind in ("gain", "panel") for ending in ("png", "pdf")
    }
    assert all(path.stat().st_size > 5000 for path in paths)
    rmse, depths = Maps(Path(runs["GAI"][0]), ["tests"]).rmse_per_bin()
    assert rmse.shape == (100,)
    assert len(depths) == 3
    assert plot(cfg, {"GAI": runs["GAI"]}, tmp_path) == []
