"""Read npz, npy and mat files from elsewhere.

The sizes that a file claims are added up before it is unpacked, so that a small file cannot fill
the memory. A truncated or damaged file raises an error with its name. Nothing in it is executed.
"""

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from datasets.io.files import MAX_BYTES

AGAIN = "Download or make the file again."
BROKEN = (ValueError, EOFError, KeyError, OSError, zipfile.BadZipFile, zlib.error)
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_COMPRESSED, _MATRIX = 15, 14  # element types of a MAT-file
_CONTAINERS = (1, 2, 3)  # matrix classes that contain matrices: cell, struct, object


def read_npz(path: Path, max_bytes: int = MAX_BYTES, advice: str = AGAIN) -> dict[str, NDArray]:
    """Return all arrays of an npz; zip's checksums are compared."""
    try:
        check_npz(path, max_bytes)
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file. {advice}") from None
    except BROKEN as error:
        raise named(path, "an npz of plain arrays", error, advice) from error


def read_npy(
    path: Path, max_bytes: int = MAX_BYTES, advice: str = AGAIN, mapped: bool = False
) -> NDArray:
    """Return the array of an npy; `mapped` leaves it on disk."""
    try:
        with path.open("rb") as file:
            _check_header(file, path.stat().st_size, max_bytes)
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file. {advice}") from None
    except BROKEN as error:
        raise named(path, "an npy with a plain array", error, advice) from error


def check_npz(path: Path, max_bytes: int = MAX_BYTES, strings: bool = False) -> None:
    """Refuse an npz that unpacks to more than `max_bytes`, or whose arrays exceed the file.

    strings: allow pickled strings, which io/strings.py reads without executing them.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_total(sum(member.file_size for member in members), max_bytes)
        for member in members:
            with archive.open(member) as file:
                name = member.filename
                _check_header(file, member.file_size, max_bytes, name, strings)  # pyright: ignore


def _check_header(
    file: BinaryIO, size: int, max_bytes: int, name: str = "the array", strings: bool = False
) -> None:
    version = npy.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"{name} has npy version {version}, expected 1.0 or 2.0")
    shape, _, dtype = HEADERS[version](file)
    if dtype.hasobject:
        if strings:
            return
        raise ValueError(f"{name} contains pickled objects, which are never executed")
    claimed = math.prod(shape) * dtype.itemsize
    _check_total(claimed, max_bytes)
    if claimed > size:
        raise ValueError(f"{name} should have {claimed} bytes, the file has {size}: truncated")


def _check_total(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ValueError(
            f"it unpacks to {size:,} bytes, more than max_bytes={max_bytes:,}; raise that limit if "
            "this is right"
        )


def read_mat(path: Path, max_bytes: int = MAX_BYTES, **options: Any) -> dict[str, Any]:
    """Call scipy's `loadmat` if the file unpacks to at most `max_bytes`."""
    from scipy.io import loadmat

    check_mat(path, max_bytes)
    return loadmat(path, **options)


def check_mat(path: Path, max_bytes: int = MAX_BYTES) -> None:
    """Refuse a MAT-file (version 5) that unpacks to too much, or claims too many cells."""
    with path.open("rb") as file:
        head = file.read(128)
        if len(head) < 128 or head[124:128] not in (b"\x00\x01IM", b"\x01\x00MI"):
            return  # another version, which scipy reads or refuses
        order = "little" if head[126:128] == b"IM" else "big"
        left = max_bytes
        while len(tag := file.read(8)) == 8:
            kind, size = (int.from_bytes(tag[i : i + 4], order) for i in (0, 4))
            data = tag + file.read(min(size, left + 1))
            if kind == _COMPRESSED:
                data = zlib.decompressobj().decompress(data[8:], left + 1)
                kind = int.from_bytes(data[:4], order)
            left -= len(data)
            _check_total(max_bytes - left, max_bytes)
            if kind == _MATRIX:
                _check_cells(memoryview(data)[8:], order)


def _check_cells(matrix: memoryview, order: Any) -> None:
    """Refuse a matrix of matrices that claims more of them than fit, at any depth."""
    parts = list(_elements(matrix, order))
    if len(parts) < 2 or not parts[0][1]:
        return
    flags, dims = parts[0][1], parts[1][1]
    shape = [int.from_bytes(dims[i : i + 4], order) for i in range(0, len(dims), 4)]
    if (flags[0] if order == "little" else flags[3]) in _CONTAINERS:
        if math.prod(shape) * 8 > len(matrix):
            raise ValueError(f"a cell array or struct of shape {shape} does not fit into the file")
        for kind, data in parts[2:]:
            if kind == _MATRIX:
                _check_cells(data, order)


def _elements(data: memoryview, order: Any) -> Any:
    """Yield (type, content) of the elements of a matrix that fit into it."""
    at = 0
    while at + 8 <= len(data):
        kind, size = (int.from_bytes(data[at + i : at + i + 4], order) for i in (0, 4))
        if kind >> 16:  # a small element: its size is in the upper half of its type
            yield kind & 0xFFFF, data[at + 4 : at + 4 + (kind >> 16)]
            at += 8
        else:
            yield kind, data[at + 8 : at + 8 + size]
            at += 8 + size + -size % 8


def named(path: Path, expected: str, error: Exception, advice: str) -> ValueError:
    """Return an error that names the file."""
    text = str(error).removeprefix(f"{path}: ") or type(error).__name__
    return ValueError(f"{path}: expected {expected}; {text.rstrip('.')}. {advice}")
