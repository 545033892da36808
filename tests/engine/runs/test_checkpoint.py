"""Checkpoints are written atomically, and reading one runs no code."""

import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from engine.runs import checkpoint
from engine.training import batches


@pytest.mark.parametrize("kept", [0, 1, 100, 0.5, 0.99])
def test_truncated_file(tmp_path: Path, kept: float):
    path = tmp_path / "last.pt"
    checkpoint.write(path, {"task": {"a": torch.zeros(1000)}})
    data = path.read_bytes()
    path.write_bytes(data[: int(kept if kept in (0, 1, 100) else kept * len(data))])
    with pytest.raises(ValueError, match=r"last\.pt: expected a checkpoint.*cut off"):
        checkpoint.read(path)


@pytest.mark.parametrize(
    "save", [torch.save, lambda what, path: path.write_bytes(pickle.dumps(what))]
)
def test_a_malicious_pickle_is_not_executed(tmp_path: Path, save):
    path, trace = tmp_path / "last.pt", tmp_path / "trace"

    class Malicious:
        def __reduce__(self):
            return (os.system, (f"touch {trace}",))

    save({"format": checkpoint.FORMAT, "task": Malicious()}, path)
    with pytest.raises(ValueError, match=r"last\.pt.*never executed"):
        checkpoint.read(path)
    assert not trace.exists()


@pytest.mark.parametrize("content", [{"state_dict": {}}, [1, 2], {"format": "another"}])
def test_a_file_of_another_layout(tmp_path: Path, content):
    path = tmp_path / "last.pt"
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"last\.pt: expected a checkpoint of this engine, found"):
        checkpoint.read(path)


def test_missing_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"last\.pt: no such checkpoint"):
        checkpoint.read(tmp_path / "last.pt")


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
