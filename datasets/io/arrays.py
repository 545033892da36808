"""Read npz, npy and mat files from elsewhere.

The sizes that a file claims are checked before it is unpacked, so that a small file cannot fill the
memory. A truncated or damaged file raises an error with its name. Nothing in it is executed.

A pickle is a program that calls functions by name. Here every allowed name becomes an inert class
that only stores the arguments of the call, and any other name is an error. Not even NumPy's
constructors are called: `value_of` builds arrays of numbers and of strings from the stored calls.
"""

import contextlib
import math
import pickle
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from datasets.io.files import MAX_BYTES

AGAIN = "Download or make the file again."
BROKEN = (ValueError, EOFError, KeyError, OSError, zipfile.BadZipFile, zlib.error)
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_COMPRESSED, _MATRIX = 15, 14  # element types of a MAT-file
_CONTAINERS = (1, 2, 3)  # matrix classes that contain matrices: cell, struct, object
ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy")
KNOWN = {
    *((module, name) for module in ARRAYS for name in ("_reconstruct", "scalar")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),  # bytes as Python 3 pickles them in an old protocol
    ("__builtin__", "bytes"),
}


def read_npz(
    path: Path, max_bytes: int = MAX_BYTES, advice: str = AGAIN, only: Collection[str] | None = None
) -> dict[str, NDArray]:
    """Return the arrays of an npz, or some of them; zip's checksums are compared."""
    found = {}
    with _named(path, "an npz of plain arrays", advice), zipfile.ZipFile(path) as archive:
        _check_total(sum(member.file_size for member in archive.infolist()), max_bytes)
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if only is None or name in only:
                with archive.open(member) as file:
                    found[name] = _read(file, member.file_size, max_bytes, name)
    return found


def read_npy(
    path: Path, max_bytes: int = MAX_BYTES, advice: str = AGAIN, mapped: bool = False
) -> NDArray:
    """Return the array of an npy; `mapped` leaves it on disk."""
    with _named(path, "an npy with a plain array", advice), path.open("rb") as file:
        if mapped:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        return _read(file, path.stat().st_size, max_bytes, "the array")


def _read(file: IO[bytes], size: int, max_bytes: int, name: str) -> NDArray:
    version = npy.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"{name} has npy version {version}, expected 1.0 or 2.0")
    shape, _, dtype = HEADERS[version](file)
    if dtype.hasobject:
        return read_strings(file, name)
    claimed = math.prod(shape) * dtype.itemsize
    _check_total(claimed, max_bytes)
    if claimed > size:
        raise ValueError(f"{name} should have {claimed} bytes, the file has {size}: truncated")
    file.seek(0)
    return npy.read_array(file, allow_pickle=False)


def _check_total(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ValueError(
            f"it unpacks to {size:,} bytes, more than max_bytes={max_bytes:,}; raise that limit if "
            "this is right"
        )


def numbers(array: NDArray, shape: tuple[int, ...], name: str) -> NDArray:
    """Return finite float32 numbers of this shape; errors start with `name`."""
    if array.shape != shape or array.dtype.kind not in "fiub":
        raise ValueError(f"{name} is {array.dtype} {array.shape}, expected numbers {shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite numbers.")
    return np.ascontiguousarray(array, np.float32)


def read_mat(path: Path, max_bytes: int = MAX_BYTES, **options: Any) -> dict[str, Any]:
    """Call scipy's `loadmat` if the file unpacks to at most `max_bytes`."""
    from scipy.io import loadmat

    with path.open("rb") as file:
        order: Any = {b"\x00\x01IM": "little", b"\x01\x00MI": "big"}.get(file.read(128)[124:])
        left = max_bytes
        while order and len(tag := file.read(8)) == 8:  # no order: another version, without zlib
            kind, size = (int.from_bytes(tag[i : i + 4], order) for i in (0, 4))
            data = tag + file.read(min(size, left + 1))
            if kind == _COMPRESSED:
                data = zlib.decompressobj().decompress(data[8:], left + 1)
                kind = int.from_bytes(data[:4], order)
            left -= len(data)
            _check_total(max_bytes - left, max_bytes)
            if kind == _MATRIX:
                _check_cells(memoryview(data)[8:], order)
    return loadmat(path, **options)


def _check_cells(matrix: memoryview, order: Any) -> None:
    """Refuse a matrix of matrices that claims more of them than fit, at any depth."""
    parts, at = [], 0  # (type, content) of the elements
    while at + 8 <= len(matrix):
        kind, size = (int.from_bytes(matrix[at + i : at + i + 4], order) for i in (0, 4))
        if small := kind >> 16:  # the size of a small element is in the upper half of its type
            parts.append((kind & 0xFFFF, matrix[at + 4 : at + 4 + small]))
            at += 8
        else:
            parts.append((kind, matrix[at + 8 : at + 8 + size]))
            at += 8 + size + -size % 8
    (_, flags), (_, dims) = (*parts, (0, b""), (0, b""))[:2]
    if flags and (flags[0] if order == "little" else flags[3]) in _CONTAINERS:
        shape = [int.from_bytes(dims[i : i + 4], order) for i in range(0, len(dims), 4)]
        if math.prod(shape) * 8 > len(matrix):
            raise ValueError(f"a cell array or struct of shape {shape} does not fit into the file")
        for kind, data in parts[2:]:
            if kind == _MATRIX:
                _check_cells(data, order)


@contextlib.contextmanager
def _named(path: Path, expected: str, advice: str) -> Iterator[None]:
    """Add the name of the file to errors."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file. {advice}") from None
    except BROKEN as error:
        text = str(error).removeprefix(f"{path}: ") or type(error).__name__
        raise ValueError(f"{path}: expected {expected}; {text.rstrip('.')}. {advice}") from error


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
