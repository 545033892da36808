"""Checkpoints: written whole or not at all, and read without running code.

Writing goes through `engine.files.whole`, so that kill -9 or a full disk leaves the old one.
Reading unpickles tensors and plain containers only (`weights_only=True`), so a checkpoint from
elsewhere cannot run code.
"""

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric

from engine.files import whole
from models.released import read_plain

FORMAT = "balanced-regression checkpoint 1"


def write(path: Path, content: dict[str, Any]) -> None:
    """Save a checkpoint; on failure the previous one is kept, and the error says so."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **content}, buffer)
    try:
        with whole(path) as file:
            file.write(buffer.getbuffer())
    except OSError as error:
        kept = "the previous one is kept" if path.exists() else "there was none before"
        raise OSError(
            error.errno,
            f"{path}: the checkpoint could not be written ({error.strerror or error}); {kept}. "
            "Free some disk space and start the same command again: resume=auto goes on from it",
        ) from error


def read(path: Path) -> dict[str, Any]:
    """A checkpoint that `write` made; anything else is an error that names the file."""
    content = read_plain(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = (
            sorted(map(str, content))[:5] if isinstance(content, dict) else type(content).__name__
        )
        raise ValueError(
            f"{path}: expected a checkpoint of this engine, found {found}. A released checkpoint "
            "is read by models.released.load, or scripts/evaluate.py released=<file>."
        )
    return content


def random_state() -> dict[str, Any]:
    """The state of every generator of this process, as tensors and plain containers."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.array(keys)), position, has_gauss, gauss],
        "python": random.getstate(),
    }


def random_states(fabric: Fabric) -> list[dict[str, Any]]:
    """`random_state` of every rank."""
    if fabric.world_size == 1:
        return [random_state()]
    buffer = io.BytesIO()
    torch.save(random_state(), buffer)
    gathered = [b""] * fabric.world_size
    torch.distributed.all_gather_object(gathered, buffer.getvalue())
    return [torch.load(io.BytesIO(state), weights_only=True) for state in gathered]


def restore_random_state(state: dict[str, Any]) -> None:
    """The inverse of `random_state`."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy(), position, has_gauss, gauss))  # noqa: NPY002
    version, words, extra = state["python"]
    random.setstate((version, tuple(words), extra))
