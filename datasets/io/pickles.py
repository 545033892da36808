"""Read arrays and strings from a pickle without executing it.

A pickle is a program that calls functions by name. Here every allowed name becomes an inert class
that only stores the arguments of the call, and any other name is an error. Not even NumPy's
constructors are called: `value_of` builds arrays of numbers and of strings from the stored calls.
"""

import pickle
import re
from collections.abc import Collection
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy")
KNOWN = {
    *((module, name) for module in ARRAYS for name in ("_reconstruct", "scalar")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),  # bytes as Python 3 pickles them in an old protocol
    ("__builtin__", "bytes"),
}


class Call:
    """A call that is not made: its arguments and the state that follows."""

    arguments: tuple = ()
    state: Any = None

    def __init__(self, *arguments: Any):
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Reader(pickle._Unpickler):
    """Strings, containers and calls; `packages` may be named, too.

    The unpickler in C allocates as much memory as a few bytes of the file ask for.
    """

    def __init__(self, file: IO[bytes], encoding: str, packages: Collection[str] = ()):
        super().__init__(file, encoding=encoding)
        self.packages = packages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN and module.split(".")[0] not in self.packages:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return type(name, (Call,), {})  # a new class: a pickle can set attributes of it


def read_strings(file: IO[bytes], name: str) -> NDArray:
    """Return the strings of a pickled array of objects."""
    try:
        found = value_of(Reader(file, "utf-8").load())
        if not isinstance(found, np.ndarray):
            raise ValueError("it is not an array")
        return found
    except Exception as error:  # a damaged or hostile pickle fails in many ways
        raise ValueError(
            f"{name} contains objects that are not all strings ({error}); they are never executed. "
            "Write it as an array of str or numbers"
        ) from error


def value_of(item: Any) -> Any:
    """Return the bytes, scalar or array that a stored call describes; other items as they are."""
    match type(item).__name__ if isinstance(item, Call) else None:
        case "encode" | "bytes":
            text, encoding = item.arguments or ("", "latin1")
            if type(text) is not str or encoding != "latin1":
                raise ValueError(f"bytes in encoding {encoding!r}")
            return text.encode("latin1")
        case "scalar":
            kind, raw = item.arguments
            return np.ndarray((), _dtype(kind), value_of(raw))[()]
        case "_reconstruct":
            _, shape, kind, fortran, data = item.state
            if kind.arguments[0][0] == "O":
                if not isinstance(data, list) or shape != (len(data),):
                    raise ValueError("it is not a list of items")
                return np.array([_text(value_of(one)) for one in data], str)
            data = data.encode("latin1") if isinstance(data, str) else value_of(data)
            return np.frombuffer(data, _dtype(kind)).reshape(shape, order="F" if fortran else "C")
    return item


def _dtype(kind: Call) -> np.dtype:
    name, order = kind.arguments[0], kind.state[1]
    if not re.fullmatch("[<>|][fiubSU][0-9]+", order + name):
        raise ValueError(f"an array of type {order + name!r:.20}")
    return np.dtype(order + name)


def _text(item: Any) -> str:
    if not isinstance(item, str | bytes):
        raise ValueError(f"one is a {type(item).__name__}")
    return str(item) if isinstance(item, str) else item.decode()
