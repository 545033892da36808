"""Reader of SMPL's official pickles, without chumpy and without running what they contain.

A pickle is a program. This reader lets it build arrays only: NumPy's constructors are allowed by
name, classes of chumpy and scipy become a stub that keeps the state, and any other name is an
error.
"""

import codecs
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core import multiarray
from numpy.typing import NDArray
from scipy.sparse import csc_matrix

from models.smpl import check_body

KEYS = ("v_template", "shapedirs", "posedirs", "J_regressor", "weights", "kintree_table", "f")


class Stub:
    """Object of a class that is not installed: keeps its state and does nothing."""

    def __init__(self, *arguments: Any):
        self.state: Any = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Return the bytes that Python 3 writes as text in an old protocol."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r}")
    return codecs.encode(text, encoding)


def _reconstruct(kind: type, base: type, state: Any) -> Any:
    """Return an object as Python 2 makes it, without calling its constructor."""
    if kind is not Stub:
        raise pickle.UnpicklingError(f"an object of {kind}")
    return Stub()


ALLOWED: dict[str, Any] = {
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    "numpy.core.multiarray._reconstruct": multiarray._reconstruct,  # pyright: ignore
    "numpy._core.multiarray._reconstruct": multiarray._reconstruct,  # pyright: ignore
    "numpy.core.multiarray.scalar": multiarray.scalar,  # pyright: ignore
    "numpy._core.multiarray.scalar": multiarray.scalar,  # pyright: ignore
    "builtins.object": object,
    "builtins.bytes": bytes,
    "__builtin__.object": object,  # Python 2
    "__builtin__.bytes": bytes,
    "copyreg._reconstructor": _reconstruct,
    "copy_reg._reconstructor": _reconstruct,
    "_codecs.encode": _encode,
}


class Reader(pickle.Unpickler):
    """Arrays, plain containers and stubs; every other name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" in ALLOWED:
            return ALLOWED[f"{module}.{name}"]
        if module.split(".")[0] == "chumpy" or module.startswith("scipy.sparse"):
            return Stub
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_pickle(path: Path) -> dict[str, NDArray]:
    """Return the arrays of a SMPL pickle; nothing in it is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; SMPL is downloaded from smpl.is.tue.mpg.de")
    try:
        content = Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a damaged or hostile pickle fails in many ways
        raise ValueError(
            f"{path}: expected one of SMPL's pickles, which hold arrays; {error}. Nothing of it "
            "was executed. Download the file again from SMPL's site."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a dict of arrays, got {type(content).__name__}.")
    arrays = {key: to_array(content[key], f"{path}: {key}") for key in KEYS if key in content}
    return check_body(arrays, str(path))


def to_array(value: Any, name: str) -> NDArray:
    """Return an array, from the state of a chumpy array or a sparse matrix if it is one."""
    if isinstance(value, Stub) and isinstance(value.state, dict):
        state = value.state
        if {"data", "indices", "indptr"} <= set(state):
            shape = state.get("_shape") or state["shape"]
            parts = state["data"], state["indices"], state["indptr"]
            return csc_matrix(parts, shape=tuple(map(int, shape))).toarray()
        value = state.get("x", value)
    if not isinstance(value, np.ndarray) or value.dtype == object:
        raise ValueError(f"{name}: expected an array of numbers, got {type(value).__name__}.")
    return value
