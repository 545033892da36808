"""Every random generator of this process together: torch's, NumPy's and Python's."""

import contextlib
import io
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric


def seed_all(*key: int) -> None:
    """Seed every generator, those of GPUs too."""
    torch.manual_seed(_seed_cpu(*key))


@contextlib.contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Inside, every CPU generator starts from `key`; afterwards each is where it was."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    torch.default_generator.manual_seed(_seed_cpu(*key))
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])


def _seed_cpu(*key: int) -> int:
    """Seed NumPy and Python; the seed for torch."""
    high, low = np.random.SeedSequence(key).generate_state(2).tolist()
    np.random.seed(high)  # noqa: NPY002  (whoever uses the old generator must be repeatable too)
    random.seed(low)
    return (high << 32 | low) >> 1


def repeatable(wanted: bool) -> None:
    """Refuse operations whose result differs from one time to the next on the same device."""
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for
    torch.use_deterministic_algorithms(wanted)
    torch.backends.cudnn.benchmark = not wanted


def state() -> dict[str, Any]:
    """The state of every generator of this process, as tensors and plain containers."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.array(keys)), position, has_gauss, gauss],
        "python": random.getstate(),
    }


def states(fabric: Fabric) -> list[dict[str, Any]]:
    """`state` of every rank."""
    if fabric.world_size == 1:
        return [state()]
    buffer = io.BytesIO()
    torch.save(state(), buffer)
    gathered = [b""] * fabric.world_size
    torch.distributed.all_gather_object(gathered, buffer.getvalue())
    return [torch.load(io.BytesIO(state), weights_only=True) for state in gathered]


def restore(state: dict[str, Any]) -> None:
    """The inverse of `state`."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy(), position, has_gauss, gauss))  # noqa: NPY002
    version, words, extra = state["python"]
    random.setstate((version, tuple(words), extra))
