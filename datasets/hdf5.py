"""HDF5 files whose arrays are written by plain file writes.

HDF5 itself keeps what could not be written and tries again when the file is closed, and again when
the process ends, which on a full disk ends in a segmentation fault. So here HDF5 only lays out the
file (a few kilobytes); the numbers then go to where it says, and a full disk is an OSError.
"""

import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import h5py
import numpy as np
from numpy.typing import DTypeLike

OWN = 1 << 16  # bytes, more than HDF5 needs for itself
Layout = Mapping[str, tuple[tuple[int, ...], DTypeLike]]  # {name: (shape, dtype)}


def lay_out(file: BinaryIO, arrays: Layout, attributes: Mapping[str, Any]) -> dict[str, int]:
    """Make the open file an HDF5 file with these arrays; where in it each begins.

    The space is reserved, so that a disk that is too small is known at once.
    """
    sizes = {name: _bytes(*array) for name, array in arrays.items()}
    _reserve(file, sum(sizes.values()) + OWN)
    with h5py.File(file.name, "w") as h5:
        h5.attrs.update(attributes)
        offsets = {name: _create(h5, name, *array) for name, array in arrays.items()}
    _reserve(file, max(offsets[name] + size for name, size in sizes.items()))
    return offsets


def _create(h5: h5py.File, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> int:
    how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    how.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    how.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    kind, space = h5py.h5t.py_create(np.dtype(dtype)), h5py.h5s.create_simple(shape)
    return h5py.h5d.create(h5.id, name.encode(), kind, space, how).get_offset() or 0


def _reserve(file: BinaryIO, size: int) -> None:
    if size:
        os.posix_fallocate(file.fileno(), 0, size)


def _bytes(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    return int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
