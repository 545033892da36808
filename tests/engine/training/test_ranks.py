"""Two processes give what one process gives with the joined batch, however ragged the shares."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.launchers.multiprocessing import _MultiProcessingLauncher

from engine.features import cache as features
from engine.runs import checkpoint
from engine.runs.run import run
from tests import process
from tests.engine.tiny import config, write_faces


@pytest.fixture
def ragged(tmp_path: Path) -> Path:
    """51 images in batches of at most 24: shares of 9 and 8; 13 to evaluate: shares of 7 and 6."""
    return write_faces(tmp_path / "data", train=51, other=13)


def state(folder: str) -> dict:
    return checkpoint.read(Path(folder) / "checkpoints" / "last.pt")


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks are forks of a process that has imported the libraries."""
    init, forks = _MultiProcessingLauncher.__init__, process.context().get_start_method()

    def forked(self: _MultiProcessingLauncher, strategy: Any, start_method: str) -> None:
        assert start_method == "spawn"
        init(self, strategy, forks)

    monkeypatch.setattr(_MultiProcessingLauncher, "__init__", forked)


@pytest.mark.usefixtures("forked_ranks")
def test_two_devices_train_as_one(ragged: Path, tmp_path: Path):
    """BMC gathers labels over ranks, regularisers also features; with the backbone frozen, the
    whole stage 2 must agree."""
    regularizers = ("+regularizer=[conr,srl,dist_loss]", "adapter=4")
    cfg = config(ragged, tmp_path, "imdb_wiki/bmc", "trainer.epochs=3", *regularizers)
    one = run(cfg)
    single = state(one["folder"])
    prediction = np.load(Path(one["folder"]) / "predictions.npz")["test_pred"]
    cfg.trainer.devices, cfg.rerun = 2, True
    two = run(cfg)
    assert two["folder"] == one["folder"]
    double = state(two["folder"])
    assert len(double["random"]) == 2  # every rank's
    for key, value in single["task"].items():
        # float32 sums in another order
        torch.testing.assert_close(double["task"][key], value, rtol=1e-5, atol=1e-6)
    for key, value in one["metrics"].items():
        if value is not None:
            assert two["metrics"][key] == pytest.approx(value, rel=1e-5)
    again = np.load(Path(two["folder"]) / "predictions.npz")["test_pred"]
    np.testing.assert_allclose(again, prediction, rtol=1e-5)


def test_accumulation_parts_give_the_whole_batch(ragged: Path, tmp_path: Path):
    runs = [
        run(config(ragged, tmp_path, "imdb_wiki/gai", f"trainer.accumulate={parts}"))
        for parts in (1, 3)
    ]
    assert runs[0]["folder"] != runs[1]["folder"]
    one, three = (state(done["folder"])["task"] for done in runs)
    for key, value in one.items():
        torch.testing.assert_close(three[key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("row", "few", "message"),
    [
        ("vanilla", ("trainer.devices=4", "trainer.epoch_size=3"), "by 4 devices"),
        ("bmc", ("features=cached", "trainer.accumulate=9", "trainer.batch_size=8"), "times 9"),
    ],
)
def test_too_few_samples_are_refused_before_anything_starts(
    row: str, few: tuple, message: str, faces: Path, tmp_path: Path, monkeypatch
):
    if row == "vanilla":
        monkeypatch.setattr(Fabric, "launch", lambda *_, **__: pytest.fail("started"))
    monkeypatch.setattr(features, "tables", lambda *_: pytest.fail("made features"))
    with pytest.raises(ValueError, match=f"samples .* cannot be shared .*{message}"):
        run(config(faces, tmp_path / "out", f"imdb_wiki/{row}", *few))
