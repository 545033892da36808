"""Every experiment file composes, builds and runs two steps an epoch, on tiny images."""

from pathlib import Path

import pytest
import torch

from datasets import nyud2
from engine.cli import targets
from engine.runs.run import CONFIGS, composed, run
from tests.configs import test_ihmr
from tests.engine.tiny import config, depth_config

EXPERIMENTS = sorted(
    str(path.relative_to(CONFIGS / "experiment").with_suffix(""))
    for path in (CONFIGS / "experiment").rglob("*.yaml")
)
PRESETS = ("paper", "official", "laptop")


AGES = [name for name in EXPERIMENTS if name.startswith("imdb_wiki/")]
DEPTHS = [name for name in EXPERIMENTS if name.startswith("nyud2/")]


def test_every_experiment_is_run_by_a_test():
    bodies = [f"ihmr/{row}" for row in test_ihmr.ROWS]
    assert sorted([*AGES, *DEPTHS, *bodies, "stsb/vanilla"]) == EXPERIMENTS  # test_stsb.py
    assert len(DEPTHS) >= 9


@pytest.mark.parametrize("experiment", AGES)
def test_runs(experiment: str, faces: Path, tmp_path: Path):
    done = run(config(faces, tmp_path, experiment))
    assert done["metrics"]["test/bmae"] > 0
    names = {path.name.split(".")[0] for path in Path(done["folder"]).iterdir()}
    assert {"config", "metrics", "predictions"} <= names


@pytest.mark.parametrize("experiment", DEPTHS)
def test_depth_runs(experiment: str, rooms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nyud2, "BLOCK", 2)  # so that some of the eight frames can be held out
    done = run(depth_config(rooms, tmp_path, experiment))
    assert done["metrics"]["test/rmse"] > 0
    assert done["row"] == composed("train", [f"experiment={experiment}"]).row
    names = {path.name.split(".")[0] for path in Path(done["folder"]).iterdir()}
    assert {"config", "metrics"} <= names


@pytest.mark.parametrize("experiment", ["imdb_wiki/vanilla", "imdb_wiki/gai", "nyud2/gai"])
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_compose(experiment: str, preset: str):
    cfg = composed("train", [f"experiment={experiment}", f"preset={preset}"])
    assert cfg.preset == preset
    assert cfg.name == experiment


def test_presets_hold_the_settings_of_paper_and_release():
    paper = composed("train", ["experiment=imdb_wiki/gai"])
    official = composed("train", ["experiment=imdb_wiki/gai", "preset=official"])
    assert (paper.trainer.epochs, paper.loss.prior.components, paper.freeze_bn) == (30, 2, True)
    assert (official.trainer.epochs, official.loss.prior.components) == (10, 8)
    assert not official.freeze_bn
    stage1 = composed("train", ["experiment=imdb_wiki/vanilla"])
    assert (stage1.trainer.epochs, stage1.trainer.batch_size) == (90, 256)
    assert stage1.optim.schedule.milestones == [60, 80]


def test_depth_presets_hold_the_settings_of_paper_and_release():
    paper = composed("train", ["experiment=nyud2/gai"])
    official = composed("train", ["experiment=nyud2/gai", "preset=official"])
    assert (paper.trainer.epochs, paper.trainer.batch_size) == (20, 32)
    assert (paper.loss.prior.components, paper.select.which) == (16, "last")
    assert (paper.loss.likelihood.sigma, paper.loss.likelihood.learn_sigma) == (1, False)
    assert (official.trainer.epochs, official.select.which) == (10, "best")
    assert official.dataset.validation == "test"


def test_an_experiment_file_is_named_after_its_place():
    for experiment in EXPERIMENTS:
        assert composed("train", [f"experiment={experiment}"]).name == experiment


MODELS = sorted(path.stem for path in (CONFIGS / "model").glob("*.yaml"))


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("depth")])
def test_every_depth_model_builds(name: str):
    cfg = composed("train", ["experiment=nyud2/vanilla", f"model={name}"])
    place = "cpu" if name == "depth_lite" else "meta"  # shapes only
    if place == "meta":
        cfg.model.weights = None
    with torch.no_grad(), torch.device(place):
        model = targets.make(cfg.model, outputs=3).eval()
        maps = model(torch.zeros(1, 3, 228, 304))
    assert maps.shape[:2] == (1, 3)
    assert tuple(maps.shape[2:]) == ((28, 38) if name == "depth_lite" else (114, 152))


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith("depth")])
def test_every_model_builds(name: str):
    cfg = composed("train", ["experiment=imdb_wiki/vanilla", f"model={name}"])
    model = targets.make(cfg.model, outputs=3).eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 3)
