"""Every experiment file composes, builds and runs two steps an epoch, on tiny images."""

from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate

from engine.run import CONFIGS, composed, run
from tests.engine.tiny import config

EXPERIMENTS = sorted(
    str(path.relative_to(CONFIGS / "experiment").with_suffix(""))
    for path in (CONFIGS / "experiment" / "imdb_wiki").rglob("*.yaml")
)
PRESETS = ("paper", "official", "laptop")


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_runs(experiment: str, faces: Path, tmp_path: Path):
    done = run(config(faces, tmp_path, experiment))
    assert done["metrics"]["test/bmae"] > 0
    names = {path.name.split(".")[0] for path in Path(done["folder"]).iterdir()}
    assert {"config", "metrics", "predictions"} <= names


@pytest.mark.parametrize("experiment", ["imdb_wiki/vanilla", "imdb_wiki/gai"])
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


def test_an_experiment_file_is_named_after_its_place():
    for experiment in EXPERIMENTS:
        assert composed("train", [f"experiment={experiment}"]).name == experiment


@pytest.mark.parametrize("path", sorted((CONFIGS / "model").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_model_builds(path: Path):
    cfg = composed("train", ["experiment=imdb_wiki/vanilla", f"model={path.stem}"])
    model = instantiate(cfg.model, outputs=3).eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 3)
