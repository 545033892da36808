"""The frames of NYUD2 on disk: PNGs listed in a CSV, or the labelled `.mat`.

    nyu2_train.csv, nyu2_test.csv    image,depth: no header, the first element of a path is `root`
    training depth                   8-bit PNG,  metres = value / 255 * 10
    test depth                       16-bit PNG, metres = value / 1000

A zero in a depth map is a missing measurement.
"""

import csv as csv_format
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import h5py
import numpy as np

from datasets import depth as maps
from datasets.io import hdf5, images
from datasets.io.arrays import MAX_BYTES, read_mat
from datasets.io.images import MAX_PIXELS

CHUNK = 1 << 28  # bytes that are unpacked at once
PREPARE = "scripts/prepare_nyud2.py"
UNITS = {8: 10 / 255, 16: 1 / 1000}  # metres of a step of a depth PNG


class Frame(NamedTuple):
    image: np.ndarray  # (., ., 3) uint8 RGB
    depth: np.ndarray  # (., .) as stored
    unit: float  # metres of a step of it: the few pixels that are used are scaled, not all


class PngFrames:
    """The rows of a CSV; every file is known to exist. `bits` of a depth PNG: 8 or 16; reduced: a
    JPEG of at least twice the size that is needed comes at half of it."""

    def __init__(
        self,
        csv: Path,
        root: Path,
        bits: int,
        reduced: bool = False,
        max_pixels: int = MAX_PIXELS,
    ):
        self.bits, self.reduced, self.max_pixels = bits, reduced, max_pixels
        rows = read_csv(csv)
        self.files = locate(csv, root, rows)
        self.scenes = [str(Path(image).parent) for image, _ in rows]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Frame:
        file, other = self.files[index]
        image, shape = read_image(file, self.reduced, self.max_pixels)
        depth = read_depth(other, self.bits, self.max_pixels)
        if tuple(shape) != depth.shape:
            raise ValueError(
                f"{other}: expected depth of the size of its image {file}, {tuple(shape)}, got "
                f"{depth.shape}. Fetch the pair again."
            )
        return Frame(image, depth, UNITS[self.bits])

    def depth(self, index: int) -> np.ndarray:
        """Metres."""
        raw = read_depth(self.files[index][1], self.bits, self.max_pixels)
        return raw.astype(np.float32) * np.float32(UNITS[self.bits])


class MatFrames:
    """Frames of nyu_depth_v2_labeled.mat, which holds images and depths with swapped axes."""

    def __init__(
        self,
        mat: Path,
        splits: Path,
        split: str,
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ):
        if not h5py.is_hdf5(mat):
            found = "no such file" if not mat.is_file() else "a file of another format"
            raise ValueError(
                f"{mat}: expected the labelled set as HDF5 (MATLAB v7.3) with `images` and "
                f"`depths`, got {found}. Fetch nyu_depth_v2_labeled.mat again."
            )
        self.mat, self.max_bytes, self.pid = mat, max_bytes, -1
        self.arrays: tuple[Any, Any] | None = None
        self.numbers = read_splits(splits, max_bytes)[split]
        with h5py.File(mat) as file:
            missing = {"images", "depths"} - set(file)
            if missing:
                raise ValueError(
                    f"{mat}: expected `images` and `depths`, {sorted(missing)} missing; it holds "
                    f"{sorted(file)[:6]}. Fetch nyu_depth_v2_labeled.mat."
                )
            shapes: list[Any] = [array.shape for array in self._arrays(file)]
            if len(shapes[0]) != 4 or len(shapes[1]) != 3 or shapes[0][1] != 3:
                raise ValueError(
                    f"{mat}: expected images (P, 3, W, H) and depths (P, W, H), got {shapes[0]} "
                    f"and {shapes[1]}. Fetch nyu_depth_v2_labeled.mat again."
                )
            if max(shape[-1] * shape[-2] for shape in shapes) > max_pixels:
                raise ValueError(
                    f"{mat}: frames of {shapes[0][2]} x {shapes[0][3]} pixels, more than "
                    f"max_pixels={max_pixels:,}. Fetch nyu_depth_v2_labeled.mat again."
                )
            count = min(shape[0] for shape in shapes)
        if max(self.numbers) >= count:
            raise ValueError(
                f"{splits}: expected numbers of the {count} frames of {mat}, got "
                f"{max(self.numbers) + 1}. Take the splits.mat of the same release."
            )
        self.scenes = [""] * len(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Frame:
        image = self._open()[0][self.numbers[index]].transpose(2, 1, 0)
        return Frame(np.ascontiguousarray(image), self.depth(index), 1.0)

    def depth(self, index: int) -> np.ndarray:
        """Metres."""
        depth = self._open()[1][self.numbers[index]].T
        return _measured(np.ascontiguousarray(depth, np.float32), f"{self.mat}, frame {index}")

    def _open(self) -> tuple[Any, Any]:
        if self.arrays is None or self.pid != os.getpid():  # a handle must not cross a fork
            self.arrays = self._arrays(h5py.File(self.mat))
            self.pid = os.getpid()
        return self.arrays

    def _arrays(self, file: h5py.File) -> tuple[h5py.Dataset, h5py.Dataset]:
        try:
            chunk = min(self.max_bytes, CHUNK)
            return hdf5.array(file, "images", "u", chunk), hdf5.array(file, "depths", "f", chunk)
        except ValueError as error:
            raise ValueError(
                f"{self.mat}: expected images and depths; {error}. Fetch "
                "nyu_depth_v2_labeled.mat again."
            ) from None

    def __getstate__(self) -> dict:
        return self.__dict__ | {"arrays": None, "pid": -1}


def frames(
    root: Path,
    side: str,
    mat: str | Path | None = None,
    splits: str | Path | None = None,
    reduced: bool = False,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
) -> PngFrames | MatFrames:
    """The training or test frames, from the CSVs or, if given, from the `.mat`."""
    if mat is None:
        bits = 8 if side == "train" else 16
        return PngFrames(root / f"nyu2_{side}.csv", root, bits, reduced, max_pixels)
    splits = Path(splits or Path(mat).with_name("splits.mat"))
    return MatFrames(Path(mat), splits, side, max_pixels, max_bytes)


def read_csv(csv: Path) -> list[tuple[str, str]]:
    """(image, depth) of every row, without the first path element, which stands for the root."""
    if not csv.is_file():
        raise FileNotFoundError(
            f"{csv}: no such CSV. Unpack NYUD2-DIR there, or make it from the labelled set: "
            f"{PREPARE} mat=nyu_depth_v2_labeled.mat root={csv.parent}"
        )
    rows = []
    with csv.open(newline="", encoding="utf-8-sig") as file:
        for line, cells in enumerate(csv_format.reader(file), start=1):
            paths = [Path(cell) for cell in cells]
            if len(paths) != 2 or any(len(p.parts) < 2 or ".." in p.parts for p in paths):
                raise ValueError(
                    f"{csv}, line {line}: expected two paths like data/nyu2_train/x.jpg, got "
                    f"{cells}. Fix the row."
                )
            rows.append(tuple(str(Path(*path.parts[1:])) for path in paths))
    if not rows:
        raise ValueError(f"{csv}: expected rows image,depth; got an empty file. Fetch it again.")
    return rows


def locate(csv: Path, root: Path, rows: Sequence[tuple[str, str]]) -> list[tuple[Path, Path]]:
    """The rows' files, each known to exist; every folder is listed once."""
    listings: dict[Path, set[str]] = {}
    files = []
    for line, row in enumerate(rows, start=1):
        pair = root / row[0], root / row[1]
        for file in pair:
            if file.parent not in listings:
                here = file.parent.is_dir()
                listings[file.parent] = set(os.listdir(file.parent)) if here else set()
            if file.name not in listings[file.parent]:
                raise FileNotFoundError(
                    f"{csv}, line {line}: no such file {file}. Unpack the frames below {root}, or "
                    "take the row out of the CSV."
                )
        files.append(pair)
    return files


def read_image(
    file: Path, reduced: bool = False, max_pixels: int = MAX_PIXELS
) -> tuple[np.ndarray, tuple[int, int]]:
    """RGB uint8, if `reduced` a JPEG of at least twice the size at half of it, and the size in the
    file."""
    data = images.read_bytes(file)
    encoded, shape = images.bounded(data, file, max_pixels), images.jpeg_shape(data)
    half = reduced and shape is not None and min(shape) >= 2 * maps.SHORT_SIDE
    # Deviation: where a JPEG is twice too large, it is decoded at half its size, which averages
    # 2 x 2 pixels; the released code decodes all and filters with PIL's triangle.
    flags = cv2.IMREAD_REDUCED_COLOR_2 if half else cv2.IMREAD_COLOR
    flags |= cv2.IMREAD_IGNORE_ORIENTATION
    image = cv2.imdecode(encoded, flags) if len(encoded) else None
    if image is None:
        raise ValueError(f"{file}: expected an image, got {len(data)} bytes that do not decode.")
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB), shape or image.shape[:2]


def read_depth(file: Path, bits: int, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """What a PNG of 8 bits (255 is 10 m) or 16 bits (millimetres) holds; `UNITS` are its steps."""
    encoded = images.bounded(images.read_bytes(file), file, max_pixels)
    raw = cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED) if len(encoded) else None
    expected = np.uint8 if bits == 8 else np.uint16
    if raw is None or raw.ndim != 2 or raw.dtype != expected:
        got = "no image" if raw is None else f"{raw.dtype} with shape {raw.shape}"
        raise ValueError(
            f"{file}: expected a grey PNG of {bits} bits (training depth has 8, test depth 16), "
            f"got {got}. Is it in the right CSV?"
        )
    return _measured(raw, file)


def read_splits(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, list[int]]:
    """{"train", "test"}: frame numbers from zero, of NYU's splits.mat."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; fetch splits.mat of NYU Depth v2.")
    try:
        content = read_mat(path, max_bytes)
        names = {"train": "trainNdxs", "test": "testNdxs"}
        return {side: (content[name].ravel() - 1).tolist() for side, name in names.items()}
    except Exception as error:  # a damaged .mat file fails in many ways
        raise ValueError(
            f"{path}: expected trainNdxs and testNdxs, got {error}. Fetch splits.mat again."
        ) from error


def _measured(depth: np.ndarray, file: Path | str) -> np.ndarray:
    if not depth.any():
        raise ValueError(
            f"{file}: expected a depth map, got zeros only, i.e. no measurement at all. Fetch it "
            "again, or take its row out of the CSV."
        )
    return depth
