"""A run whose loss or parameters are not finite stops, and nothing of that step is saved.

On a CPU every step is checked. On a GPU the check would synchronise, so it runs when something is
logged and before a checkpoint is written; the tests make a CPU do the same.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning_fabric import Fabric

from engine.runs.run import run
from engine.training.divergence import DivergenceCheck
from engine.training.loop import Loop
from tests.engine.tiny import config

STEPS = 4  # in an epoch
CPU = ("log.every=1000", "trainer.checkpoint_every=1")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check as on a GPU."""
    never = property(lambda self: False, lambda self, value: None)
    monkeypatch.setattr(DivergenceCheck, "every_step", never, raising=False)


def break_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The loss of this step, counted from zero over the epochs, is not a number."""
    record = DivergenceCheck.record

    def patched(self: DivergenceCheck, step: int, loss: torch.Tensor, *others):
        return record(self, step, loss * (torch.nan if step == number else 1), *others)

    monkeypatch.setattr(DivergenceCheck, "record", patched)


def tiny(faces: Path, tmp_path: Path, *overrides: str):
    changes = ("trainer.batch_size=12", "trainer.epochs=2", "seed=0")
    return config(faces, tmp_path, "imdb_wiki/fds", *changes, *overrides)


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps after which last.pt was written."""
    steps, save = [], Loop.save
    monkeypatch.setattr(Loop, "save", lambda self: (steps.append(self.steps_done), save(self)))
    return steps


@pytest.mark.parametrize(
    ("number", "settings", "message", "steps"),
    [
        (0, CPU, "epoch 0, step 0", []),
        (2, CPU, "epoch 0, step 2", [1, 2]),
        (1, ("log.every=3",), r"epoch 0, step 1 \(1 steps later\)", []),
        (STEPS + 1, ("log.every=1000",), r"epoch 1, step 1 \(2 steps later\)", [4]),
        (STEPS + 1, ("log.every=1000", "trainer.checkpoint_every=2"), "epoch 1, step 1", [2, 4]),
    ],
    ids=["cpu, first step", "cpu, later step", "gpu, log", "gpu, epoch", "gpu, checkpoint"],
)
def test_the_first_bad_step_is_named(
    number, settings, message, steps, saved, faces: Path, tmp_path: Path, monkeypatch, request
):
    """A CPU stops at once, a GPU when it logs and before it saves."""
    if settings != CPU:
        request.getfixturevalue("later")
    break_at(monkeypatch, number)
    with pytest.raises(FloatingPointError, match=rf"{message}: loss=.*pred_min=.*pred_max=.*lr"):
        run(tiny(faces, tmp_path, *settings))
    assert saved == steps


def test_inputs_that_are_not_finite_are_named():
    """The data are wrong, the run has not diverged."""
    task = SimpleNamespace(terms=lambda batch, pred: {})
    check = DivergenceCheck(Fabric(accelerator="cpu", devices=1), task, STEPS)
    batch = {"input": torch.ones(3, 2, 2), "meta": {"index": torch.tensor([7, 8, 9])}}
    batch["input"][1, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"step 2: loss=nan. The inputs of .*samples \[8\]"):
        check.record(2, torch.tensor(torch.nan), batch, torch.ones(3, 1))


@pytest.mark.parametrize("every", [0, 2])
def test_an_overflow_in_the_last_step_is_not_saved(every, faces: Path, tmp_path: Path, monkeypatch):
    """All losses are finite, the parameters after a step are not."""
    train_step = Loop.train_step

    def patched(self: Loop, *args) -> torch.Tensor:
        loss = train_step(self, *args)
        if self.step == (every or STEPS) - 1:
            self.task.model.linear.bias.data.fill_(torch.inf)
        return loss

    monkeypatch.setattr(Loop, "train_step", patched)
    found = r"1 parameters are not: model.linear.bias. Nothing is saved"
    with pytest.raises(FloatingPointError, match=found):
        run(tiny(faces, tmp_path, "log.every=1000", f"trainer.checkpoint_every={every}"))
    assert not [*tmp_path.rglob("*.pt")]


@pytest.mark.usefixtures("later")
def test_a_later_check_changes_no_number(faces: Path, tmp_path: Path, monkeypatch):
    late = run(tiny(faces, tmp_path / "late"))
    monkeypatch.undo()
    assert run(tiny(faces, tmp_path / "now"))["metrics"] == late["metrics"]
