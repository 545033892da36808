"""SMPL's official pickles, read without chumpy and without running what they hold.

A pickle is a program. Here it may build arrays and nothing else: numpy's own constructors are
allowed by name, chumpy's and scipy's classes are replaced by a stub that only keeps its state, and
any other name is an error.
"""

import codecs
import importlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix

from models.smpl import check_body

KEYS = ("v_template", "shapedirs", "posedirs", "J_regressor", "weights", "kintree_table", "f")
MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")


class Stub:
    """Stands for an object of a class that is not there: it keeps the state, and does nothing."""

    def __init__(self, *arguments: Any):
        self.state: Any = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes in an old protocol."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r}")
    return codecs.encode(text, encoding)


def _reconstruct(kind: type, base: type, state: Any) -> Any:
    """How Python 2 makes an object without calling its constructor."""
    if kind is not Stub:
        raise pickle.UnpicklingError(f"an object of {kind}")
    return Stub()


class Reader(pickle.Unpickler):
    """Arrays, plain containers and stubs; every other name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if module in MULTIARRAY and name in ("_reconstruct", "scalar"):
            return getattr(importlib.import_module("numpy._core.multiarray"), name)
        allowed = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("builtins", "object"): object,
            ("builtins", "bytes"): bytes,
            ("copyreg", "_reconstructor"): _reconstruct,
            ("_codecs", "encode"): _encode,
        }
        module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)  # Python 2
        if (module, name) in allowed:
            return allowed[module, name]
        if module.split(".")[0] == "chumpy" or module.startswith("scipy.sparse"):
            return Stub
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_pickle(path: Path) -> dict[str, NDArray]:
    """The arrays of a SMPL pickle; nothing in it is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; SMPL is downloaded from smpl.is.tue.mpg.de")
    try:
        content = Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a damaged or hostile pickle fails in many ways
        raise ValueError(
            f"{path}: expected one of SMPL's pickles, which hold arrays; {error}. Nothing of it "
            "was executed. Fetch the file again from SMPL's own site."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a dict of arrays, got {type(content).__name__}.")
    arrays = {key: plain(content[key], f"{path}: {key}") for key in KEYS if key in content}
    return check_body(arrays, str(path))


def plain(value: Any, name: str) -> NDArray:
    """An array, or what a chumpy array or a sparse matrix has kept of one."""
    if isinstance(value, Stub) and isinstance(value.state, dict):
        state = value.state
        if {"data", "indices", "indptr"} <= set(state):
            shape = state.get("_shape") or state["shape"]
            parts = state["data"], state["indices"], state["indptr"]
            return csc_matrix(parts, shape=tuple(map(int, shape))).toarray()
        value = state.get("x", value)
    if not isinstance(value, np.ndarray) or value.dtype == object:
        raise ValueError(f"{name} is no array of numbers but {type(value).__name__}.")
    return value
