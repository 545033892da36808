"""A table of cached features, as it is read: rows of HDF5 files, each compared with its checksum.

    features (V, N, ...)        of V augmented views of N images
    target, mask (V, N, ...)    an augmentation may change the label as well (a mirrored pose)
    sums (V, N)                 CRC-32 of each row, compared whenever it is read

Epoch e of a head's training reads view e mod V of its batch instead of running the backbone.
"""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datasets.io import hdf5
from engine.training.batches import Key

SUMS = "sums"


class FeatureTable(Dataset):
    """A cached split: asked for keys (epoch, index) of one epoch, it gives their batch at once.

    Only the view of the current epoch is in memory; without `resident`, only the batch is.
    `rows` are the table's rows that make up the split, by default all of them.
    """

    def __init__(
        self,
        path: Path,
        size: int,
        rows: Sequence[int] | None = None,
        resident: bool = True,
    ):
        self.path, self.resident, self.rows = path, resident, rows
        self.view = -1
        self.tables: dict[str, torch.Tensor] = {}
        with opened(path) as file:
            self.views, found = array_of(file, "features").shape[:2]
            self.sums = np.asarray(array_of(file, SUMS))
        self.size = size
        if size != (found if rows is None else len(rows)):
            raise ValueError(
                f"{path}: holds features of {found} images, the split has {size}. {_advice(path)}"
            )

    def __len__(self) -> int:
        return self.size

    def __getitems__(self, keys: Sequence[Key]) -> dict[str, Any]:
        view, index = keys[0][0] % self.views, torch.tensor([index for _, index in keys])
        if self.resident:
            self._open(view)
            rows = {name: table[index] for name, table in self.tables.items()}
        else:
            rows = self._read(view, index.tolist())
        return {"input": rows.pop("features").float(), **rows, "meta": {"index": index}}

    def _open(self, view: int) -> None:
        if view != self.view:
            part = slice(None) if self.rows is None else list(self.rows)
            self.tables = self._checked(view, part)
            self.view = view

    def _read(self, view: int, index: list[int]) -> dict[str, torch.Tensor]:
        """Rows straight from the file; evaluation asks for them in rising order, as HDF5 must."""
        return self._checked(view, index)

    def _checked(self, view: int, rows: Any) -> dict[str, torch.Tensor]:
        """Rows of all tables, each row compared with its checksum."""
        with opened(self.path) as file:
            found = {k: np.asarray(array_of(file, k)[view, rows]) for k in names_of(file)}
        wrong = row_sums(found) != self.sums[view, rows]
        if wrong.any():
            raise ValueError(
                f"{self.path}: {int(wrong.sum())} of {len(wrong)} rows are damaged. "
                f"{_advice(self.path)}"
            )
        return {name: torch.from_numpy(array) for name, array in found.items()}


def opened(path: Path) -> Any:
    """A table, open to be read; one that is damaged is named."""
    try:
        file = h5py.File(path)
        if SUMS in file and "features" in file:
            return file
        file.close()
        raise ValueError(f"{path}: expected features with checksums. {_advice(path)}")
    except OSError as error:
        raise ValueError(f"{path}: cut off or damaged ({error}). {_advice(path)}") from error


def _advice(path: Path) -> str:
    return f"Remove {path} and start the same command again: it is made again."


def row_sums(arrays: Mapping[str, NDArray]) -> NDArray[np.uint32]:
    """(N,) CRC-32 of each row over all arrays (N, ...), by name."""
    rows = [np.ascontiguousarray(arrays[name]) for name in sorted(arrays)]
    flat = [array.reshape(len(array), -1).view(np.uint8) for array in rows]
    sums = np.zeros(len(flat[0]), np.uint32)
    for i in range(len(sums)):
        for array in flat:
            sums[i] = zlib.crc32(array[i], int(sums[i]))
    return sums


def names_of(file: h5py.File) -> list[str]:
    return [str(name) for name in file if name != SUMS]


def array_of(file: h5py.File, name: str) -> Any:
    try:
        return hdf5.array(file, name, "fiub")
    except ValueError as error:
        path = Path(file.filename)
        raise ValueError(f"{path}: {error}. {_advice(path)}") from None
