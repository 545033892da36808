"""HDF5 files: arrays that are really in them, and arrays that are written by plain file writes.

A file from elsewhere may name arrays in other files, or say that they are larger than the memory;
`array` gives none of these. HDF5 itself keeps what could not be written and tries again when the
file is closed, and again when the process ends, which on a full disk ends in a segmentation fault.
So here it only lays out a file (a few kilobytes); the numbers then go to where it says, and a full
disk is an OSError.
"""

import math
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import h5py
import numpy as np
from numpy.typing import DTypeLike

from datasets.io.files import unlock

OWN = 1 << 16  # bytes, more than HDF5 needs for itself
LINKS = {h5py.SoftLink: "a soft link", h5py.ExternalLink: "a link to another file"}
Layout = Mapping[str, tuple[tuple[int, ...], DTypeLike]]  # {name: (shape, dtype)}


def array(file: h5py.File, name: str, kinds: str, chunk_bytes: int = 0) -> h5py.Dataset:
    """An array of numbers of these `kinds` (NumPy's letters) that is in this very file.

    It has as many bytes there as its shape says; with `chunk_bytes` it may also be compressed in
    chunks of so many bytes at most.
    """
    link = file.get(name, getclass=True, getlink=True)
    found = file[name] if link is h5py.HardLink else None
    if not isinstance(found, h5py.Dataset):
        raise ValueError(f"{name} is {LINKS.get(link, 'missing' if link is None else 'no array')}")
    if found.external is not None or found.is_virtual:
        raise ValueError(f"the numbers of {name} are in another file")
    if found.dtype.kind not in kinds:
        raise ValueError(f"{name} holds {found.dtype}")
    if found.chunks is None:
        held, said = found.id.get_storage_size(), found.nbytes
        if held != said:
            raise ValueError(f"{name} should have {said:,} bytes, the file has {held:,}")
    elif math.prod(found.chunks) * found.dtype.itemsize > chunk_bytes:
        raise ValueError(f"{name} comes in chunks of {found.chunks}, more than is read at once")
    return found


def lay_out(file: BinaryIO, arrays: Layout, attributes: Mapping[str, Any]) -> dict[str, int]:
    """Make the open file an HDF5 file with these arrays; where in it each begins.

    The space is reserved, so that a disk that is too small is known at once.
    """
    unlock(file)  # HDF5 takes a lock of its own; who writes one holds another
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
