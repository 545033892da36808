"""Evaluate a finished run and a released checkpoint from their files alone."""

import shutil
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric

from datasets.ages import read_csv
from engine.evaluation import evaluate
from engine.runs.run import composed
from models.resnet import ResNet
from tests.engine.tiny import SIZE, TinyMaps


def test_a_released_checkpoint(faces: Path, tmp_path: Path):
    """No training image is read."""
    faces = Path(shutil.copytree(faces, tmp_path / "faces"))
    for row in read_csv(faces / "imdb_wiki" / "imdb_wiki.csv"):
        if row.split == "train":
            (faces / "imdb_wiki" / row.path).unlink()
    state = {f"module.{key}": value for key, value in ResNet(50).state_dict().items()}
    torch.save({"state_dict": state, "epoch": 1}, tmp_path / "gai.pth")
    cfg = composed("evaluate", [f"paths.data={faces}", f"dataset.size={SIZE}"])
    task, metrics = evaluate.released_model(tmp_path / "gai.pth", "imdb_wiki", cfg)
    fabric = Fabric(accelerator="cpu", devices=1)
    report = evaluate.report(fabric, cfg, task, metrics, "test", 12)
    dataset = evaluate.build.dataset(cfg, "test")
    with torch.no_grad():
        images = torch.stack([dataset[i]["input"] for i in range(len(dataset))])
        errors = (task.model(images) - torch.from_numpy(dataset.labels)).abs()
    assert report["mae"] == pytest.approx(float(errors.mean()), rel=1e-5)


def test_a_released_depth_checkpoint_needs_the_test_files_only(
    rooms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    test_only = shutil.ignore_patterns("nyu2_train*", "train_depth*")
    shutil.copytree(rooms / "nyud2", tmp_path / "nyud2", ignore=test_only)
    monkeypatch.setattr(evaluate, "load", lambda path, layout: TinyMaps())
    cfg = composed("evaluate", ["benchmark=nyud2", f"paths.data={tmp_path}"])
    task, metrics = evaluate.released_model(tmp_path / "bni.pth", "nyud2", cfg)
    fabric = Fabric(accelerator="cpu", devices=1)
    assert evaluate.report(fabric, cfg, task, metrics, "test", 2)["rmse"] > 0
