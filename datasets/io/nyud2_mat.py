"""Frames of nyu_depth_v2_labeled.mat (HDF5), which stores images and depths with swapped axes."""

import math
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from datasets.io.arrays import read_mat
from datasets.io.nyud2_frames import Frame, check_depth

CHUNK = 1 << 28  # bytes of the largest chunk that is decompressed
AGAIN = "Download nyu_depth_v2_labeled.mat again."


class MatFrames:
    """Frames of one side ("train" or "test") of splits.mat."""

    def __init__(self, mat: Path, splits: Path, side: str, max_pixels: int, max_bytes: int):
        self.mat, self.max_bytes = mat, max_bytes
        self._arrays, self._pid = None, -1
        if not h5py.is_hdf5(mat):
            found = "a file of another format" if mat.is_file() else "no such file"
            raise ValueError(f"{mat}: expected the labelled set as HDF5, got {found}. {AGAIN}")
        self.numbers = read_splits(splits, max_bytes)[side]
        with h5py.File(mat) as file:
            images, depths = (array.shape for array in self._read(file))
        if len(images) != 4 or len(depths) != 3 or images[1] != 3:
            got = f"{images} and {depths}. {AGAIN}"
            raise ValueError(f"{mat}: expected images (P, 3, W, H) and depths (P, W, H), got {got}")
        if max(shape[-1] * shape[-2] for shape in (images, depths)) > max_pixels:
            size = f"{images[2]} x {images[3]} pixels"
            raise ValueError(f"{mat}: frames of {size}, more than {max_pixels=}. {AGAIN}")
        count = min(images[0], depths[0])
        if max(self.numbers) >= count:
            got = f"{max(self.numbers) + 1}. Take splits.mat of the same release."
            raise ValueError(
                f"{splits}: expected numbers of the {count} frames of {mat}, got {got}"
            )
        self.scenes = [""] * len(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Frame:
        image = self._open()[0][self.numbers[index]].transpose(2, 1, 0)
        return Frame(np.ascontiguousarray(image), self.depth(index), 1.0)

    def depth(self, index: int) -> NDArray:
        """Return the depth in metres."""
        depth = self._open()[1][self.numbers[index]].T
        return check_depth(np.ascontiguousarray(depth, np.float32), f"{self.mat}, frame {index}")

    def _open(self) -> tuple[Any, Any]:
        if self._arrays is None or self._pid != os.getpid():  # a handle must not cross a fork
            self._arrays, self._pid = self._read(h5py.File(self.mat)), os.getpid()
        return self._arrays

    def _read(self, file: h5py.File) -> tuple[h5py.Dataset, h5py.Dataset]:
        try:
            chunk = min(self.max_bytes, CHUNK)
            return own_array(file, "images", "u", chunk), own_array(file, "depths", "f", chunk)
        except ValueError as error:
            raise ValueError(f"{self.mat}: expected images and depths; {error}. {AGAIN}") from None

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_arrays": None}


def own_array(file: h5py.File, name: str, kinds: str, chunk_bytes: int) -> h5py.Dataset:
    """Return an array that is stored in this file, as large as its shape.

    kinds: allowed NumPy dtype kinds. chunk_bytes: limit on a chunk of a compressed array.
    """
    link = file.get(name, getclass=True, getlink=True)
    found = file[name] if link is h5py.HardLink else None
    if not isinstance(found, h5py.Dataset):
        what = {None: "missing", h5py.HardLink: "not an array"}.get(link, "a link")
        raise ValueError(f"{name} is {what}")
    if found.external is not None or found.is_virtual:
        raise ValueError(f"the numbers of {name} are in another file")
    if found.dtype.kind not in kinds:
        raise ValueError(f"{name} has type {found.dtype}")
    if found.chunks is not None:
        if math.prod(found.chunks) * found.dtype.itemsize > chunk_bytes:
            raise ValueError(f"{name} has chunks of more than {chunk_bytes:,} bytes")
    elif found.id.get_storage_size() != found.nbytes:
        held = found.id.get_storage_size()
        raise ValueError(f"{name} should have {found.nbytes:,} bytes, the file has {held:,}")
    return found


def read_splits(path: Path, max_bytes: int) -> dict[str, list[int]]:
    """Return {"train", "test"}: frame numbers from zero, of NYU's splits.mat."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file. Download splits.mat of NYU Depth v2.")
    try:
        content = read_mat(path, max_bytes)
        names = {"train": "trainNdxs", "test": "testNdxs"}
        return {side: (content[name].ravel() - 1).tolist() for side, name in names.items()}
    except Exception as error:  # a damaged .mat file fails in many ways
        message = f"{path}: expected trainNdxs and testNdxs, got {error}. Download it again."
        raise ValueError(message) from error
