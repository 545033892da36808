"""Arrays of strings from an npz, also where NumPy has pickled them; no pickle is executed.

`np.savez` pickles strings of an object array, and a pickle is a program. Here it may only build
lists of strings and plain records of the calls that describe an array. Every other name is refused,
and not even NumPy's constructors are called.
"""

import pickle
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from datasets.io.arrays import HEADERS

ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy")
KNOWN = {
    *((module, name) for module in ARRAYS for name in ("_reconstruct", "scalar")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # bytes as Python 3 pickles them in an old protocol
    ("__builtin__", "bytes"),
}


class Record:
    """A call in a pickle that is not made: its name and arguments, and the state that follows."""

    def __init__(self, name: str, *arguments: Any):
        self.name, self.arguments = name, arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Reader(pickle.Unpickler):
    """Strings, containers and records."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return lambda *arguments: Record(name, *arguments)


def read_array(file: np.lib.npyio.NpzFile, key: str) -> NDArray:
    """Return an array of an open npz; an array of objects must contain strings only."""
    with file.zip.open(f"{key}.npy") as member:  # pyright: ignore[reportOptionalMemberAccess]
        version = npy.read_magic(member)
        dtype = HEADERS[version](member)[2] if version in HEADERS else None
        if dtype is not None and dtype.hasobject:
            return _strings(member, key)
    return file[key]


def _strings(member: IO[bytes], key: str) -> NDArray:
    try:
        made = Reader(member, encoding="utf-8").load()
        if type(made) is not Record or made.name != "_reconstruct":
            raise ValueError("it is not an array")
        _, shape, _, _, items = made.state
        if not (isinstance(items, list) and shape == (len(items),)):
            raise ValueError("it is not a list of items")
        return np.array([_text(item) for item in items], str)
    except Exception as error:  # a damaged or hostile pickle fails in many ways
        raise ValueError(
            f"{key} is an array of objects that are not all strings: {error}. Nothing in it was "
            "executed. Write it as an array of str or numbers."
        ) from error


def _text(item: Any) -> str:
    """Return a str from str, bytes, or NumPy's scalars of either."""
    if type(item) is Record and item.name == "scalar":
        kind, raw = item.arguments
        raw, (name, *_), order = _plain(raw), kind.arguments, kind.state[1]
        item = raw.decode("utf-32-be" if order == ">" else "utf-32-le") if name[0] == "U" else raw
        item = item.rstrip("\0" if isinstance(item, str) else b"\0")
    item = _plain(item)
    if type(item) not in (str, bytes):
        raise ValueError(f"one is a {type(item).__name__}")
    return item if isinstance(item, str) else item.decode()


def _plain(item: Any) -> Any:
    """Return the bytes of a recorded `encode` call; other items as they are."""
    if type(item) is not Record or item.name not in ("encode", "bytes"):
        return item
    text, encoding = item.arguments or ("", "latin1")
    if type(text) is not str or encoding != "latin1":
        raise ValueError(f"bytes in encoding {encoding!r}")
    return text.encode("latin1")
