"""Random generators of this process: torch's, NumPy's and Python's."""

import io
import os
import random
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric


def seeds(*key: int) -> tuple[int, int, int]:
    """Return the seeds for torch, NumPy and Python that belong to a key."""
    high, low = np.random.SeedSequence(key).generate_state(2).tolist()
    return (high << 32 | low) >> 1, high, low


def seed_all(*key: int) -> None:
    """Seed every generator, including those of GPUs."""
    for_torch, for_numpy, for_python = seeds(*key)
    torch.manual_seed(for_torch)
    np.random.seed(for_numpy)  # noqa: NPY002
    random.seed(for_python)


def deterministic(wanted: bool) -> None:
    """Refuse operations whose result differs between two runs on the same device."""
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS
    torch.use_deterministic_algorithms(wanted)
    torch.backends.cudnn.benchmark = not wanted


def state() -> dict[str, Any]:
    """Return the state of this process's generators as tensors and plain containers."""
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.array(keys)), *rest],
        "python": random.getstate(),
    }


def states(fabric: Fabric) -> list[dict[str, Any]]:
    """Return `state` of every rank."""
    if fabric.world_size == 1:
        return [state()]
    buffer = io.BytesIO()
    torch.save(state(), buffer)
    gathered = [b""] * fabric.world_size
    torch.distributed.all_gather_object(gathered, buffer.getvalue())
    return [torch.load(io.BytesIO(data), weights_only=True) for data in gathered]


def restore(state: dict[str, Any]) -> None:
    """Set the generators of this process to a saved state."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy(), *rest))  # noqa: NPY002
    version, words, extra = state["python"]
    random.setstate((version, tuple(words), extra))
