"""The checkpoints that the paper's authors published, in their own key layout.

    {"state_dict": {"module.conv1.weight": ..., ...}, "epoch", "best_loss", "optimizer"}
    {"model": {"conv1.weight": ..., ...}, ...}                        SPIN's

The prefix `module.` is DataParallel's. Nothing but tensors, plain containers and NumPy's floats is
unpickled: the released files hold errors as np.float32 and np.float64.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.serialization import safe_globals

from models.depth import DepthNet
from models.resnet import ResNet


def _spin() -> nn.Module:
    from models.hmr import HMR  # which reads SPIN's checkpoint through this module

    return HMR()


LAYOUTS: dict[str, Callable[[], nn.Module]] = {
    "imdb_wiki": lambda: ResNet(depth=50, outputs=1),
    "nyud2": lambda: DepthNet(depth=50, outputs=1),
    "spin": _spin,
}
STATES = {"spin": "model"}  # the entry that holds the tensors; by default `state_dict`


def load(path: str | Path, layout: str) -> nn.Module:
    """The model of a released checkpoint, in eval mode.

    "imdb_wiki": (N, 3, 224, 224) -> (N, 1); "nyud2": (N, 3, 228, 304) -> (N, 1, 114, 152);
    "spin": (N, 3, 224, 224) -> rotations (N, 24, 3, 3), shape (N, 10), camera (N, 3).

    Example:
        >>> model = load("bmc.pth", "imdb_wiki")
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout is one of {sorted(LAYOUTS)}, got {layout!r}")
    return fill(LAYOUTS[layout](), path, layout).eval()


def fill(model: nn.Module, path: str | Path, layout: str) -> nn.Module:
    """The model with the tensors of a released checkpoint, each of them in its place."""
    state = state_dict(Path(path), STATES.get(layout, "state_dict"))
    expected = model.state_dict()
    missing, unexpected = sorted(expected.keys() - state), sorted(state.keys() - expected)
    if missing or unexpected:
        raise ValueError(
            f"{path}: expected the released {layout} layout of {len(expected)} tensors; missing "
            f"{_some(missing)}, unexpected {_some(unexpected)}. Is it a checkpoint of another task?"
        )
    for key, value in expected.items():
        if state[key].shape != value.shape:
            raise ValueError(
                f"{path}: {key} has shape {tuple(state[key].shape)}, the {layout} layout has "
                f"{tuple(value.shape)}; it is a checkpoint of another architecture."
            )
    model.load_state_dict(state)
    return model


def read_plain(path: Path) -> Any:
    """What a file of torch.save holds, if that is tensors, plain containers and floats only."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such checkpoint")
    with path.open("rb") as file:
        try:
            with safe_globals(NUMPY_FLOATS):
                return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file fails in many ways
            raise ValueError(
                f"{path}: expected a checkpoint of tensors and plain containers; this file is cut "
                "off, of another format, or carries code, which is never executed. Fetch or make "
                f"it again. ({type(error).__name__})"
            ) from error


class _FloatType:
    """Stands for numpy.dtype in a pickle: the type of a float and nothing else."""

    def __init__(self, name: str, *_: bool):
        if name not in ("f2", "f4", "f8"):
            raise ValueError(f"expected the type of a float, got {name!r}")
        self.format = {"f2": "e", "f4": "f", "f8": "d"}[name]
        self.order = "<"

    def __setstate__(self, state: tuple) -> None:
        """(version, byte order, ...): of a float all the rest is fixed."""
        self.order = {"<": "<", ">": ">"}[state[1]]


def _scalar(kind: _FloatType, data: bytes) -> float:
    """Stands for numpy's reconstruction of a scalar from its bytes."""
    if type(kind) is not _FloatType:
        raise ValueError(f"expected a float, got {type(kind).__name__}")
    return struct.unpack(kind.order + kind.format, data)[0]


# NumPy's own functions would also rebuild objects from addresses that a file holds; these do not.
NUMPY_FLOATS: list[Any] = [
    (_FloatType, "numpy.dtype"),
    (_scalar, "numpy.core.multiarray.scalar"),  # as NumPy 1 wrote it
    (_scalar, "numpy._core.multiarray.scalar"),
]


def state_dict(path: Path, entry: str = "state_dict") -> dict[str, torch.Tensor]:
    """The tensors of a released checkpoint without DataParallel's prefix and without the statistics
    of feature smoothing (FDS), which only training uses."""
    content = read_plain(path)
    state = content.get(entry) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        found = (
            sorted(map(str, content))[:5] if isinstance(content, dict) else type(content).__name__
        )
        raise ValueError(f"{path}: expected a dict with `{entry}`, found {found}")
    state = {key.removeprefix("module."): value for key, value in state.items()}
    return {key: value for key, value in state.items() if "FDS" not in key.split(".")}


def _some(keys: list[str]) -> str:
    return f"{keys[:3]}{' and more' if len(keys) > 3 else ''}" if keys else "none"
