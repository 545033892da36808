"""Arrays of strings from an npz, where NumPy has pickled them; nothing in the pickle is executed.

`np.savez` of strings in an object array writes a pickle, and a pickle is a program. Here it may
build lists of strings and what describes an array, as plain records; every other name is refused.
Not even NumPy's own constructors are called.
"""

import pickle
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy")


class Record:
    """What a pickle says about an object: the arguments of its constructor, and its state."""

    def __init__(self, *arguments: Any):
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Array(Record):
    """state: version, shape, dtype, order, items."""


class Kind(Record):
    """A dtype; arguments: its name; state: version, byte order, ..."""


class Scalar(Record):
    """A NumPy string; arguments: dtype, bytes."""


class Encoded(Record):
    """Bytes as Python 3 writes them in an old protocol; arguments: text, encoding; none: empty."""

    def value(self) -> bytes:
        text, encoding = self.arguments or ("", "latin1")
        if type(text) is not str or encoding != "latin1":
            raise ValueError(f"bytes in encoding {encoding!r}")
        return text.encode("latin1")


class NdarrayType(Record):
    """The name numpy.ndarray, which is only mentioned."""


KNOWN: dict[tuple[str, str], type[Record]] = {
    **{(module, "_reconstruct"): Array for module in ARRAYS},
    **{(module, "scalar"): Scalar for module in ARRAYS},
    ("numpy", "ndarray"): NdarrayType,
    ("numpy", "dtype"): Kind,
    ("_codecs", "encode"): Encoded,
    ("__builtin__", "bytes"): Encoded,
}


class Reader(pickle.Unpickler):
    """Strings, containers and records."""

    def find_class(self, module: str, name: str) -> type[Record]:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return KNOWN[module, name]


def read_array(file: np.lib.npyio.NpzFile, key: str) -> NDArray:
    """An array of an open npz; one of objects must hold strings, and becomes an array of str."""
    with file.zip.open(f"{key}.npy") as member:  # pyright: ignore[reportOptionalMemberAccess]
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        version = npy.read_magic(member)
        dtype = read[version](member)[2] if version in read else None
        if dtype is not None and dtype.hasobject:
            return _strings(member, key)
    return file[key]


def _strings(member: IO[bytes], key: str) -> NDArray:
    try:
        made = Reader(member, encoding="utf-8").load()
        if type(made) is not Array:
            raise ValueError(f"it is {type(made).__name__}, no array")
        _, shape, _, _, items = made.state
        if not (isinstance(items, list) and shape == (len(items),)):
            raise ValueError("it is no list of items")
        return np.array([_text(item) for item in items], str)
    except Exception as error:  # a damaged or hostile pickle fails in many ways
        raise ValueError(
            f"{key} is an array of objects that are not all strings: {error}. Nothing of it was "
            "executed. Write it as an array of str or numbers."
        ) from error


def _text(item: Any) -> str:
    """A string out of str, bytes, or NumPy's own of either."""
    if type(item) is Scalar:
        kind, raw = item.arguments
        raw, (name, *_), order = _plain(raw), kind.arguments, kind.state[1]
        item = raw.decode("utf-32-be" if order == ">" else "utf-32-le") if name[0] == "U" else raw
        item = item.rstrip("\0" if isinstance(item, str) else b"\0")
    item = _plain(item)
    if type(item) not in (str, bytes):
        raise ValueError(f"one is a {type(item).__name__}")
    return item if isinstance(item, str) else item.decode()


def _plain(item: Any) -> Any:
    return item.value() if type(item) is Encoded else item
