"""Frames of NYUD2-DIR, which are files listed in a CSV, and of the labelled set of NYU Depth v2.

    nyu2_train.csv, nyu2_test.csv    image,depth: no header, the first element of a path is `root`
    training depth                   8-bit PNG,  metres = value / 255 * 10
    test depth                       16-bit PNG, metres = value / 1000
    either                           32-bit TIFF, metres (prepare_nyud2.py lossless=true)

A zero in a depth map is a missing measurement. nyu_depth_v2_labeled.mat (HDF5) stores images and
depths with swapped axes.
"""

import csv as csv_format
import math
from pathlib import Path
from typing import NamedTuple

import cv2
import h5py
import numpy as np
from numpy.typing import NDArray

from datasets.depth import SHORT_SIDE
from datasets.io import images
from datasets.io.arrays import read_mat
from datasets.io.files import MAX_PIXELS, locate, outside

PREPARE = "scripts/prepare_nyud2.py"
MAT_AGAIN = "Download nyu_depth_v2_labeled.mat again."
CHUNK = 1 << 28  # bytes of the largest chunk of the .mat that is decompressed
AGAIN = "Download it again, or remove its row from the CSV."
STEPS = {"uint8": 10 / 255, "uint16": 1 / 1000, "float32": 1.0}  # metres per step of a depth
STORED = {"train": "uint8", "test": "uint16"}


class Frame(NamedTuple):
    image: NDArray  # (., ., 3) uint8 RGB
    depth: NDArray  # (., .) as stored
    unit: float  # metres per step of depth


class Frames:
    """Frames of one side ("train" or "test") of the data, whose files are checked to exist.

    reduced: decode a JPEG of at least twice the needed size at half its size.
    """

    def __init__(self, root: Path, side: str, reduced: bool = False, max_pixels: int = MAX_PIXELS):
        csv = root / f"nyu2_{side}.csv"
        self.stored, self.reduced, self.max_pixels = STORED[side], reduced, max_pixels
        rows = read_csv(csv)
        paths = [path for row in rows for path in row]
        files = locate(root, paths, lambda index: f"{csv}, line {index // 2 + 1}")
        self.files = list(zip(files[::2], files[1::2], strict=True))
        self.scenes = [str(Path(image).parent) for image, _ in rows]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Frame:
        file, other = self.files[index]
        image, shape = self._image(file)
        depth = self._depth(other)
        if shape != depth.shape:
            expected = f"depth of the size of its image {file}, {shape}"
            raise ValueError(f"{other}: expected {expected}, got {depth.shape}. {AGAIN}")
        return Frame(image, depth, STEPS[depth.dtype.name])

    def depth(self, index: int) -> NDArray:
        """Return the depth in metres."""
        raw = self._depth(self.files[index][1])
        return raw.astype(np.float32) * np.float32(STEPS[raw.dtype.name])

    def _image(self, file: Path) -> tuple[NDArray, tuple[int, ...]]:
        """Return an RGB image and its size in the file."""
        data = images.read_bytes(file)
        shape, jpeg = images.header(data)
        half = self.reduced and jpeg and min(shape) >= 2 * SHORT_SIDE
        # Deviation: where a JPEG is twice too large, it is decoded at half its size, which averages
        # 2 x 2 pixels; the released code decodes all and filters with PIL's triangle.
        flags = cv2.IMREAD_REDUCED_COLOR_2 if half else cv2.IMREAD_COLOR
        image = images.imdecode(data, file, flags, self.max_pixels, shape)
        return image, shape if jpeg else image.shape[:2]

    def _depth(self, file: Path) -> NDArray:
        data = images.read_bytes(file)
        raw = images.imdecode(data, file, cv2.IMREAD_UNCHANGED, self.max_pixels)
        if raw.ndim != 2 or raw.dtype.name not in (self.stored, "float32"):
            got = f"{raw.dtype} with shape {raw.shape}. Training depth has 8 bits, test depth 16."
            raise ValueError(f"{file}: expected a grey PNG of {self.stored}, got {got}")
        if not np.isfinite(raw).all() or raw.min() < 0 or not raw.any():
            expected = "expected a depth map, got negative or infinite numbers, or zeros only"
            raise ValueError(f"{file}: {expected}. {AGAIN}")
        return raw


def read_csv(csv: Path) -> list[tuple[str, str]]:
    """Return (image, depth) of every row, without the first path element."""
    if not csv.is_file():
        command = f"{PREPARE} mat=nyu_depth_v2_labeled.mat root={csv.parent}"
        raise FileNotFoundError(f"{csv}: no such CSV. Unpack NYUD2-DIR there, or run {command}")
    rows = []
    with csv.open(newline="", encoding="utf-8-sig") as file:
        for line, cells in enumerate(csv_format.reader(file), start=1):
            paths = [Path(cell) for cell in cells]
            relative = [str(Path(*path.parts[1:])) for path in paths]
            if len(paths) != 2 or "." in relative or any(map(outside, relative)):
                expected = "expected two paths like data/nyu2_train/x.jpg"
                raise ValueError(f"{csv}, line {line}: {expected}, got {cells}.")
            rows.append(tuple(relative))
    if not rows:
        raise ValueError(f"{csv}: expected rows image,depth; got an empty file.")
    return rows


def encode(image: NDArray, depth: NDArray, side: str, lossless: bool = False) -> dict[str, bytes]:
    """Encode RGB and metres as {suffix: bytes}, the image first.

    A train (8-bit) or test (16-bit) frame of NYUD2-DIR, or, lossless, PNG and 32-bit TIFF.
    """
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    if lossless:
        return {
            ".png": cv2.imencode(".png", bgr)[1].tobytes(),
            ".tiff": cv2.imencode(".tiff", depth.astype(np.float32))[1].tobytes(),
        }
    scale, kind = (255 / 10, np.uint8) if side == "train" else (1000, np.uint16)
    values = np.clip(np.round(depth * scale), 0, np.iinfo(kind).max).astype(kind)
    return {
        ".jpg": cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes(),
        ".png": cv2.imencode(".png", values)[1].tobytes(),
    }


class MatFrames:
    """Frames of one side ("train" or "test") of splits.mat, by default next to the `.mat`."""

    def __init__(self, mat: Path, splits: Path | None, side: str):
        splits = splits or mat.with_name("splits.mat")
        if not h5py.is_hdf5(mat):
            found = "a file of another format" if mat.is_file() else "no such file"
            raise ValueError(f"{mat}: expected the labelled set as HDF5, got {found}. {MAT_AGAIN}")
        self.numbers = read_splits(splits, side)
        file = h5py.File(mat)
        try:
            self.images, self.depths = (
                own_array(file, "images", "u"),
                own_array(file, "depths", "f"),
            )
        except ValueError as error:
            raise ValueError(f"{mat}: expected images and depths; {error}. {MAT_AGAIN}") from None
        images, depths = self.images.shape, self.depths.shape
        if len(images) != 4 or len(depths) != 3 or images[1] != 3:
            got = f"{images} and {depths}. {MAT_AGAIN}"
            raise ValueError(f"{mat}: expected images (P, 3, W, H) and depths (P, W, H), got {got}")
        if max(shape[-1] * shape[-2] for shape in (images, depths)) > MAX_PIXELS:
            size = f"{images[2]} x {images[3]} pixels"
            raise ValueError(f"{mat}: frames of {size}, more than {MAX_PIXELS:,}. {MAT_AGAIN}")
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
