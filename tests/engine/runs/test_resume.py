"""A run that is killed at random moments and resumed ends with the same bits."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.runs import checkpoint
from engine.runs.folder import finished
from engine.runs.run import run
from tests.engine import tiny
from tests.process import start

KILLS = int(os.environ.get("KILLS", "5"))
OVERRIDES = ("trainer.epochs=4", "trainer.batch_size=12", "trainer.checkpoint_every=1")


def run_folder(outputs: Path, experiment: str) -> Path:
    (folder,) = (outputs / experiment).glob("*/seed*")
    return folder


def tensors(node) -> list[torch.Tensor]:
    if isinstance(node, torch.Tensor):
        return [node]
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return [tensor for value in values for tensor in tensors(value)]


@pytest.mark.parametrize(
    ("experiment", "preset"), [("imdb_wiki/vanilla", "paper"), ("imdb_wiki/bmc", "laptop")]
)
def test_killed_runs_end_at_the_same_bits(
    experiment: str, preset: str, faces: Path, tmp_path: Path
):
    arguments = (experiment, f"preset={preset}", *OVERRIDES)
    start(tiny.train, faces, tmp_path / "warm", *arguments).join()  # fills the file cache
    began = time.perf_counter()
    full = start(tiny.train, faces, tmp_path / "full", *arguments)
    full.join()
    length = time.perf_counter() - began
    assert full.exitcode == 0

    rng = np.random.default_rng()
    kills = 0
    while kills < KILLS:
        process = start(tiny.train, faces, tmp_path / "killed", *arguments)
        process.join(timeout=rng.uniform(0.1, 0.7) * length)
        if process.exitcode is not None:
            break
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        kills += 1
    last = start(tiny.train, faces, tmp_path / "killed", *arguments)
    last.join()
    assert last.exitcode == 0
    assert kills > 0

    expected, got = (run_folder(tmp_path / name, experiment) for name in ("full", "killed"))
    for name in ("last.pt", "best.pt"):
        pair = [checkpoint.read(folder / "checkpoints" / name) for folder in (expected, got)]
        states = [tensors({k: content[k] for k in ("task",)}) for content in pair]
        assert len(states[0]) == len(states[1]) > 0
        for one, other in zip(*states, strict=True):
            assert torch.equal(one, other)
    reports = [finished(folder) for folder in (expected, got)]
    assert reports[0] is not None
    assert reports[1] is not None
    assert reports[0]["metrics"] == reports[1]["metrics"]
    files = [np.load(folder / "predictions.npz") for folder in (expected, got)]
    for key in files[0].files:
        np.testing.assert_array_equal(files[0][key], files[1][key])


def test_resuming_restores_sigma_its_optimiser_and_the_step(faces: Path, tmp_path: Path):
    """A run that is stopped in the middle of an epoch resumes from that step."""
    overrides = ("trainer.checkpoint_every=1", "trainer.batch_size=12")
    cfg = tiny.config(faces, tmp_path, "imdb_wiki/gai", *overrides)
    saves = []
    write = checkpoint.write

    def stop_after_six(path: Path, content: dict) -> None:
        write(path, content)
        if path.parent.parent.parent.parent.name == "gai" and path.name == "last.pt":
            saves.append(content["position"])
            if len(saves) == 6:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "write", stop_after_six)
        with pytest.raises(KeyboardInterrupt):
            run(cfg)
    folder = run_folder(tmp_path, "imdb_wiki/gai")
    content = checkpoint.read(folder / "checkpoints" / "last.pt")
    assert content["position"] == {"epoch": 1, "step": 2}
    assert content["task"]["loss.likelihood.sigma"] != 10
    groups = content["optimizer"]["param_groups"]
    assert groups[1]["lr"] == cfg.optim.loss_lr
    (sigma,) = groups[1]["params"]
    assert content["optimizer"]["state"][sigma]["step"] == 6  # its moments are restored

    done = run(cfg)
    assert "resuming from" in (Path(done["folder"]) / "train.log").read_text()
