"""Every experiment of IHMR composes, builds and runs two steps an epoch, on tiny pictures."""

from pathlib import Path

import pytest

from engine.runs.run import CONFIGS, composed, run
from tests.engine.tiny_bodies import config

ROWS = sorted(path.stem for path in (CONFIGS / "experiment" / "ihmr").glob("*.yaml"))
VARIANTS = {
    "subspace": "subspace=4",
    "per_joint": "loss.prior.per_joint=true",
    "tangent": "loss.coordinates.kind=tangent",
    "axis_angle": "loss.coordinates.kind=axis_angle",
    "rot6d": "loss.coordinates.kind=rot6d",
    "per_dimension": "loss.likelihood.per_dimension=true",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder, so that all rows share their stage 1 and its features."""
    return tmp_path_factory.mktemp("outputs")


@pytest.mark.parametrize("row", ROWS)
def test_runs(row: str, bodies: Path, outputs: Path):
    done = run(config(bodies, outputs, f"ihmr/{row}"))
    assert done["metrics"]["test/bmpvpe_tail5"] is None or done["metrics"]["test/bmpvpe"] > 0
    assert {"test/bmpjpe", "test/bpa_mpjpe_tail10", "val/bmpvpe"} <= set(done["metrics"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_run(variant: str, bodies: Path, outputs: Path):
    cfg = config(bodies, outputs, "ihmr/gai", "subspace=null", VARIANTS[variant], "choose=null")
    assert run(cfg)["metrics"]["test/bmpvpe"] > 0


def test_the_released_terms_run(bodies: Path, outputs: Path):
    """All training people, the last epoch, MMHuman3D's terms."""
    changes = (
        "task.terms._target_=engine.benchmarks.bodies.terms.Released",
        "+task.terms.robust=1",
        *("task.terms.good_fit=10", "loss.likelihood.normalised=false", "choose=null"),
        *("dataset.holdout=0", "select.which=last"),
    )
    done = run(config(bodies, outputs, "ihmr/bmc", *changes))
    assert done["metrics"]["test/bmpvpe"] > 0
    assert done["epoch"] == 2
    assert not any(key.startswith("val/") for key in done["metrics"])


def test_presets_hold_the_settings_of_paper_and_release():
    paper = composed("train", ["experiment=ihmr/gai"])
    official = composed("train", ["experiment=ihmr/gai", "preset=official"])
    assert (paper.trainer.epochs, paper.trainer.batch_size, paper.components) == (20, 128, 16)
    assert paper.optim.optimizer.lr == 1e-4
    assert paper.loss.likelihood.sigma == 1.0
    assert paper.optim.loss_lr == 1e-2
    assert dict(paper.task.scale) == {
        **{"keypoints": 300, "joints": 300, "pose": 60, "shape": 0.06, "camera": 60}
    }
    assert paper.metrics.vertices == "neutral"
    assert paper.choose.key == "loss.strength"
    assert official.loss.strength == 1 / 24
    assert paper.loss.likelihood.normalised
    assert not official.loss.likelihood.normalised
    assert official.choose is None
    assert official.metrics.vertices == "gt"
    assert dict(paper.task.terms) == {
        **{"_target_": "engine.benchmarks.bodies.terms.Spin", "good_fit": 100, "fit_robust": 100}
    }
    assert dict(official.task.terms) == {
        **{"_target_": "engine.benchmarks.bodies.terms.Released", "robust": 1, "good_fit": 10},
        "fit_robust": 100,
    }
    assert (official.select.which, official.dataset.holdout) == ("last", 0)
    assert (paper.dataset.turned, official.dataset.turned) == (0.4, 0.6)
    assert (paper.dataset.one_warp, official.dataset.one_warp) == (False, True)
    first = composed("train", ["experiment=ihmr/spin", "preset=official"])
    assert first.dataset == official.dataset
    assert composed("train", ["experiment=ihmr/spin"]).trainer.epochs == 0
    shares = [one.probability for one in paper.dataset.train.values()]
    assert sum(shares) == pytest.approx(1)
