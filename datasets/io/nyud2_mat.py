"""Frames of nyu_depth_v2_labeled.mat (HDF5), which stores images and depths with swapped axes."""

import math
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from datasets.io.arrays import read_mat
from datasets.io.files import MAX_PIXELS

CHUNK = 1 << 28  # bytes of the largest chunk that is decompressed
AGAIN = "Download nyu_depth_v2_labeled.mat again."


class MatFrames:
    """Frames of one side ("train" or "test") of splits.mat, by default next to the `.mat`."""

    def __init__(self, mat: Path, splits: Path | None, side: str):
        splits = splits or mat.with_name("splits.mat")
        if not h5py.is_hdf5(mat):
            found = "a file of another format" if mat.is_file() else "no such file"
            raise ValueError(f"{mat}: expected the labelled set as HDF5, got {found}. {AGAIN}")
        self.numbers = read_splits(splits, side)
        file = h5py.File(mat)
        try:
            self.images, self.depths = (
                own_array(file, "images", "u"),
                own_array(file, "depths", "f"),
            )
        except ValueError as error:
            raise ValueError(f"{mat}: expected images and depths; {error}. {AGAIN}") from None
        images, depths = self.images.shape, self.depths.shape
        if len(images) != 4 or len(depths) != 3 or images[1] != 3:
            got = f"{images} and {depths}. {AGAIN}"
            raise ValueError(f"{mat}: expected images (P, 3, W, H) and depths (P, W, H), got {got}")
        if max(shape[-1] * shape[-2] for shape in (images, depths)) > MAX_PIXELS:
            size = f"{images[2]} x {images[3]} pixels"
            raise ValueError(f"{mat}: frames of {size}, more than {MAX_PIXELS:,}. {AGAIN}")
        if max(self.numbers) >= (count := min(images[0], depths[0])):
            expected = f"expected numbers of the {count} frames of {mat}"
            got = f"{max(self.numbers) + 1}. Take splits.mat of the same release."
            raise ValueError(f"{splits}: {expected}, got {got}")

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> tuple[NDArray, NDArray]:
        """Return the image (H, W, 3) and the depth (H, W) in metres."""
        image = self.images[self.numbers[index]].transpose(2, 1, 0)
        depth = self.depths[self.numbers[index]].T
        return np.ascontiguousarray(image), np.ascontiguousarray(depth, np.float32)


def own_array(file: h5py.File, name: str, kind: str) -> h5py.Dataset:
    """Return an array of a NumPy kind that is stored in this file, as large as its shape."""
    link = file.get(name, getclass=True, getlink=True)
    found = file[name] if link is h5py.HardLink else None
    if not isinstance(found, h5py.Dataset):
        what = {None: "missing", h5py.HardLink: "not an array"}.get(link, "a link")
        raise ValueError(f"{name} is {what}")
    if found.external is not None or found.is_virtual:
        raise ValueError(f"the numbers of {name} are in another file")
    if found.dtype.kind != kind:
        raise ValueError(f"{name} has type {found.dtype}")
    if found.chunks is not None:
        if math.prod(found.chunks) * found.dtype.itemsize > CHUNK:
            raise ValueError(f"{name} has chunks of more than {CHUNK:,} bytes")
    elif found.id.get_storage_size() != found.nbytes:
        held = found.id.get_storage_size()
        raise ValueError(f"{name} should have {found.nbytes:,} bytes, the file has {held:,}")
    return found


def read_splits(path: Path, side: str) -> list[int]:
    """Return the frame numbers, from zero, of one side of NYU's splits.mat."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file. Download splits.mat of NYU Depth v2.")
    try:
        return (read_mat(path)[f"{side}Ndxs"].ravel() - 1).tolist()
    except Exception as error:  # a damaged .mat file fails in many ways
        message = f"{path}: expected trainNdxs and testNdxs, got {error}. Download it again."
        raise ValueError(message) from error
