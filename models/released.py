"""Checkpoints that the paper's authors published, in their own key layout.

    {"state_dict": {"module.conv1.weight": ..., ...}, "epoch", "best_loss", "optimizer"}
    {"model": {"conv1.weight": ..., ...}, ...}                        SPIN's

DataParallel adds the prefix `module.`. Only tensors, plain containers and NumPy's floats are
unpickled: the released files hold errors as np.float32 and np.float64.
"""

import importlib
import struct
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.serialization import safe_globals

LAYOUTS = {
    "imdb_wiki": ("models.resnet", "ResNet"),
    "nyud2": ("models.depth", "DepthNet"),
    "spin": ("models.hmr", "HMR"),
}


def load(path: str | Path, layout: str) -> nn.Module:
    """Return the model of a released checkpoint, in eval mode.

    "imdb_wiki": (N, 3, 224, 224) -> (N, 1); "nyud2": (N, 3, 228, 304) -> (N, 1, 114, 152);
    "spin": (N, 3, 224, 224) -> rotations (N, 24, 3, 3), shape (N, 10), camera (N, 3).

    Example:
        >>> model = load("bmc.pth", "imdb_wiki")
    """
    if layout not in LAYOUTS:
        raise ValueError(f"Unknown layout {layout!r}; choose from {', '.join(LAYOUTS)}")
    module, name = LAYOUTS[layout]  # imported late: checkpoints are read without the models
    return fill(getattr(importlib.import_module(module), name)(), path, layout).eval()


def fill(model: nn.Module, path: str | Path, layout: str) -> nn.Module:
    """Load a released checkpoint into a model and return the model."""
    state = state_dict(Path(path), "model" if layout == "spin" else "state_dict")
    try:
        model.load_state_dict(state)
    except RuntimeError as error:  # missing and unexpected keys, other shapes
        found = " ".join(str(error).split())[:400]
        message = f"{path}: expected a checkpoint of the {layout} layout; {found}"
        raise ValueError(message) from None
    return model


def state_dict(path: Path, entry: str = "state_dict") -> dict[str, torch.Tensor]:
    """Return the tensors of a released checkpoint without DataParallel's prefix and without the
    statistics of feature smoothing (FDS), which only training uses."""
    content = read_plain(path)
    state = content.get(entry) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        keys = sorted(map(str, content))[:5] if isinstance(content, dict) else "no dict"
        raise ValueError(f"{path}: expected a dict with `{entry}`, found {keys}")
    state = {key.removeprefix("module."): value for key, value in state.items()}
    return {key: value for key, value in state.items() if "FDS" not in key.split(".")}


def read_plain(path: Path) -> Any:
    """Return the content of a torch.save file of tensors, plain containers and floats."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such checkpoint")
    with path.open("rb") as file:
        try:
            with safe_globals(NUMPY_FLOATS):
                return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file fails in many ways
            raise ValueError(
                f"{path}: expected a checkpoint of tensors and plain containers; this file is cut "
                "off, of another format, or carries code, which is never executed. Download or "
                f"make it again. ({type(error).__name__})"
            ) from error


class _FloatType:
    """Replaces numpy.dtype in a pickle: the type of a float and nothing else."""

    def __init__(self, name: str, *_: bool):
        self.format, self.order = {"f2": "e", "f4": "f", "f8": "d"}[name], "<"

    def __setstate__(self, state: tuple) -> None:
        """Read (version, byte order, ...); the rest is fixed for a float."""
        self.order = {"<": "<", ">": ">"}[state[1]]


def _scalar(kind: _FloatType, data: bytes) -> float:
    """Replaces NumPy's reconstruction of a scalar from its bytes."""
    return struct.unpack(kind.order + kind.format, data)[0]


# NumPy's own functions would also rebuild objects from addresses in the file; these do not.
NUMPY_FLOATS: list[Any] = [
    (_FloatType, "numpy.dtype"),
    (_scalar, "numpy.core.multiarray.scalar"),  # NumPy 1
    (_scalar, "numpy._core.multiarray.scalar"),
]
