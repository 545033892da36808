"""Reader of SMPL's official pickles, without chumpy and without running what they contain."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix

from datasets.io.pickles import Call, Reader, value_of
from models.smpl import KEYS, check_body

# Python's objects and the classes of the arrays; Python 2 names the modules differently.
PACKAGES = ("chumpy", "scipy", "copyreg", "copy_reg", "builtins", "__builtin__")


def read_pickle(path: Path) -> dict[str, NDArray]:
    """Return the arrays of a SMPL pickle; nothing in it is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; SMPL is downloaded from smpl.is.tue.mpg.de")
    try:
        content = Reader(io.BytesIO(path.read_bytes()), "latin1", PACKAGES).load()
        arrays = {key: _array(content[key], key) for key in KEYS if key in content}
    except Exception as error:  # a damaged or hostile pickle fails in many ways
        raise ValueError(
            f"{path}: expected one of SMPL's pickles, a dict of arrays; {error}. Nothing of it was "
            "executed. Download the file again from SMPL's site."
        ) from error
    return check_body(arrays, str(path))


def _array(value: Any, name: str) -> NDArray:
    """Return an array, from the state of a chumpy array or a sparse matrix if it is one."""
    state = value.state if isinstance(value, Call) and isinstance(value.state, dict) else {}
    if {"data", "indices", "indptr"} <= set(state):
        shape = state.get("_shape") or state["shape"]
        parts = tuple(value_of(state[key]) for key in ("data", "indices", "indptr"))
        matrix = csc_matrix(parts, shape=tuple(int(value_of(side)) for side in shape))
        matrix.check_format()  # `toarray` would write beyond its memory
        return matrix.toarray()
    found = value_of(state.get("x", value))
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
        raise ValueError(f"{name} is not an array of numbers")
    return found
