"""Damaged, missing and hostile files of a run: they are noticed, reading them runs no code, and the
advice of the error works.

Damaged images, CSVs, packed stores and cached features: tests/datasets and tests/engine/features.
"""

import os
import pickle
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from engine.runs import checkpoint, records
from engine.runs.run import run
from engine.training import batches
from tests.datasets.io.test_pickles import Program
from tests.engine.tiny import config

Damage = Callable[[Path], object]


def cut(kept: float) -> Damage:
    """Keep so many bytes, or a share of them."""

    def damage(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(kept if kept >= 1 else kept * len(data))])

    return damage


def other_number(path: Path) -> None:
    text = re.sub(r'("test/bmae": )\d', r"\g<1>9", path.read_text())
    assert text != path.read_text()
    path.write_text(text)


def diverged(path: Path) -> None:
    records.write(path, {**records.read(path, ""), "metrics": {}, "divergence": "too large."})


def other_byte(path: Path) -> None:
    """torch itself reads a changed byte as if nothing had happened."""
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = next(m for m in archive.infolist() if m.filename.endswith("/data/0"))
    data[member.header_offset + 200] ^= 64  # inside the first tensor: a header has 64 bytes or so
    path.write_bytes(data)


HOSTILE = {"format": checkpoint.FORMAT, "task": Program(os.system, ("touch trace",))}
CHECKPOINTS: list[tuple[Damage, str]] = [
    *(
        (cut(kept), "expected a checkpoint.*cut off.*remove the run")
        for kept in (0, 1, 100, 0.5, 0.99)
    ),
    (other_byte, "damaged, the checksum .*remove the run"),
    (lambda path: torch.save(HOSTILE, path), "never executed"),
    (lambda path: path.write_bytes(pickle.dumps(HOSTILE)), "never executed"),
    *(
        (lambda path, what=what: torch.save(what, path), "expected a checkpoint of this engine, fo")
        for what in ({"state_dict": {}}, [1, 2], {"format": "another"})
    ),
    (Path.unlink, "no such checkpoint"),
]


@pytest.mark.parametrize(("damage", "message"), CHECKPOINTS)
def test_a_damaged_or_hostile_checkpoint_is_refused(
    damage: Damage, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    path = Path("last.pt")
    checkpoint.write(path, {"task": {"a": torch.zeros(1000)}})
    damage(path)
    with pytest.raises((ValueError, FileNotFoundError), match=rf"last\.pt.*{message}"):
        checkpoint.read(path)
    assert not Path("trace").exists()


def test_round_trip_of_tensors_and_random_states(tmp_path: Path):
    def sample() -> tuple:
        return torch.rand(3).tolist(), np.random.normal(size=3).tolist(), random.random()  # noqa: NPY002

    np.random.normal()  # noqa: NPY002  (leaves half of a pair behind, which is state too)
    (state,) = batches.generator_states(Fabric(accelerator="cpu", devices=1))
    path = tmp_path / "new" / "a.pt"
    checkpoint.write(path, {"random": state, "task": {"a": torch.arange(3)}, "epoch": 2})
    expected, back = sample(), checkpoint.read(path)
    batches.restore_generators(back["random"])
    assert sample() == expected
    assert torch.equal(back["task"]["a"], torch.arange(3))
    assert back["epoch"] == 2
    assert [file.name for file in path.parent.iterdir()] == ["a.pt"]


TEXTS = ("", '{"metrics": {"te', "null", "{}", "[]", '{"metrics": 3}')
REFUSED: list[tuple[str, Damage]] = [
    *(("metrics.json", lambda path, text=text: path.write_text(text)) for text in TEXTS),
    ("metrics.json", other_number),
    *((name, damage) for name in ("best.pt", "last.pt") for damage in (cut(0.9), other_byte)),
    ("best.pt", Path.unlink),
]
RESUMED = ("metrics.json", "last.pt", "config.yaml", "identity.json", "train.log", "lock")


@pytest.fixture(scope="module")
def finished(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """The outputs of a run, and its metrics."""
    outputs = tmp_path_factory.mktemp("outputs")
    return outputs, run(config(faces, outputs))["metrics"]


@pytest.mark.parametrize(("name", "damage"), [*REFUSED, *((name, Path.unlink) for name in RESUMED)])
def test_a_damaged_file(name: str, damage: Damage, finished: tuple, faces: Path, tmp_path: Path):
    """The command resumes to the same metrics, or advises to remove what then gives them."""
    outputs, before = shutil.copytree(finished[0], tmp_path / "out"), finished[1]
    cfg = config(faces, outputs)
    (path,) = outputs.rglob(name)
    damage(path)
    if name != "metrics.json":  # a finished run reads no other file
        (metrics,) = outputs.rglob("metrics.json")
        metrics.unlink()
    if (name, damage) in REFUSED:
        with pytest.raises((ValueError, FileNotFoundError), match=rf"{name}\b.*[Rr]emove"):
            run(cfg)
        shutil.rmtree(next(outputs.rglob("config.yaml")).parent)
    assert run(cfg)["metrics"] == before


def test_a_damaged_stage_one(faces: Path, tmp_path: Path):
    """rerun=true of a stage-2 run leaves stage 1 alone; removing the named folder helps."""
    cfg = config(faces, tmp_path / "out", "imdb_wiki/bmc", "rerun=true")
    before = run(cfg)["metrics"]
    damages = ("metrics.json", other_number), ("metrics.json", diverged), ("best.pt", cut(0.9))
    for name, damage in damages:
        (stage1,) = (tmp_path / "out" / "imdb_wiki" / "vanilla" / "paper").iterdir()
        damage(next(stage1.rglob(name)))
        with pytest.raises((ValueError, FloatingPointError), match=rf"{stage1}.*[Rr]emove"):
            run(cfg)
        shutil.rmtree(stage1)
        assert run(cfg)["metrics"] == before
