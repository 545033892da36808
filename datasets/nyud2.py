"""NYUD2-DIR: indoor scenes and their depth.

    nyu2_train.csv, nyu2_test.csv    the frames, see datasets/io/nyud2_frames.py
    test_balanced_mask.npy           uint8 (frames, 228, 304): the evaluated pixels
    train_depth_histogram.npy        (frames, 100) pixels in each 0.1 m bin

scripts/prepare_nyud2.py makes the last two.

H, W, h, w and B as in datasets/depth.py: (h, w) is the size of the model's output in training and
(H, W) in evaluation. P: frames.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datasets import depth as maps
from datasets.io.arrays import read_npy
from datasets.io.files import MAX_BYTES, MAX_PIXELS, Progress, manifest
from datasets.io.nyud2_frames import PREPARE, Frames, read_csv

SPLITS = ("train", "val", "test")
RESAMPLING = ("once", "released")
MASK, HISTOGRAM = "test_balanced_mask.npy", "train_depth_histogram.npy"
BLOCK = 20  # consecutive frames that are held out together if there are no scene folders


class DepthDataset(Dataset):
    """{"input": (3, H, W), "target": (1, h, w) metres, "mask": (1, h, w), "meta": {"index": i}}.

    Only evaluation has the mask of evaluated pixels: the balanced one for `test`, all pixels from
    0.7 m on for `val`.

    Arguments:
        output: (h, w) of a training target.
        augment: mirror, rotation and colours; by default for the train split only.
        resampling: of a training frame. "once": by one affine map, and a JPEG of twice the size is
            decoded at half of it; "released": step by step as in the released code.
        validation: None: the val split is empty; "test": it is the test split, as in the released
            code; a number: that share of the training scenes, which are not trained on.
        mask, histogram: the files of scripts/prepare_nyud2.py; by default in `root`.
        max_pixels, max_bytes: limits on an image and on the unpacked size of another file.
    """

    def __init__(
        self,
        root: str | Path,
        split: str,
        output: Sequence[int],
        augment: bool | None = None,
        resampling: str = "once",
        validation: float | str | None = None,
        mask: str | Path | None = None,
        histogram: str | Path | None = None,
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ):
        if split not in SPLITS:
            raise ValueError(f"Unknown split {split!r}; choose from {', '.join(SPLITS)}.")
        if resampling not in RESAMPLING:
            choices = ", ".join(RESAMPLING)
            raise ValueError(f"Unknown resampling {resampling!r}; choose from {choices}.")
        self.root, self.split, self.output = Path(root), split, (output[0], output[1])
        self.augment = split == "train" if augment is None else augment
        # Deviation: training samples a frame once instead of three times, see docs/protocol.md.
        self.once = split == "train" and resampling == "once"
        side = "test" if split == "test" or (split, validation) == ("val", "test") else "train"
        self.frames = Frames(self.root, side, self.once, max_pixels)
        self.numbers = _chosen(self.frames.scenes, side, split, validation)
        self.labels = maps.bin_centers()[:, None]  # (B, 1), each as often as label_counts says
        self.mask, self.label_counts = None, None
        if side == "test":
            self.mask = self._read(mask or self.root / MASK, maps.CROP, max_bytes, mapped=True)
        elif split == "train":
            counts = self._read(histogram or self.root / HISTOGRAM, (maps.BINS,), max_bytes)
            self.label_counts = counts[self.numbers].sum(0)

    @staticmethod
    def fingerprint(
        content: bool,
        root: str | Path,
        mask: str | Path | None = None,
        histogram: str | Path | None = None,
        **_: Any,
    ) -> str:
        """Return a digest of the frames, the mask and the histogram."""
        csvs = [Path(root, f"nyu2_{side}.csv") for side in ("train", "test")]
        paths = [path for csv in csvs if csv.is_file() for row in read_csv(csv) for path in row]
        files = [mask or Path(root, MASK), histogram or Path(root, HISTOGRAM), *csvs]
        return manifest([*map(str, files), *(f"{root}/{p}" for p in paths)], content, str(root))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> dict:
        image, depth, unit = self.frames[self.numbers[index]]
        angle, mirror, colours = 0.0, False, None
        if self.augment:
            turn, coin = torch.rand(2).tolist()
            angle, mirror = maps.ANGLE * (2 * turn - 1), coin < 0.5
        size = self.output if self.split == "train" else maps.CROP
        if self.once:
            where = maps.placement(image.shape[:2], maps.CROP, angle, mirror)
            image = maps.sample(image, maps.CROP, where, nearest=False)
            where = maps.placement(depth.shape, size, angle, mirror)
            target = maps.sample(depth, size, where, nearest=True).astype(np.float32)
        else:
            image = maps.released_image(image, angle, mirror)
            target = maps.released_depth(depth, size, angle, mirror).astype(np.float32)
        if self.augment:
            colours = maps.random_colours(np.array(cv2.mean(image)[:3]) / 255)
        target *= np.float32(unit)
        item = {
            "input": maps.to_tensor(image, colours),
            "target": torch.from_numpy(target)[None],
            "meta": {"index": index},
        }
        if self.split != "train":
            mask = target >= maps.NEAREST if self.mask is None else self.mask[index] > 0
            item["mask"] = torch.from_numpy(mask & (target > 0))[None]
        return item

    def _read(
        self, file: str | Path, shape: tuple[int, ...], max_bytes: int, mapped: bool = False
    ) -> NDArray:
        """Read a file of scripts/prepare_nyud2.py, which has an array of this shape per frame."""
        command = f"Make it with {PREPARE} root={self.root} overwrite=true"
        array = read_npy(Path(file), max_bytes, command, mapped)
        if array.shape != (expected := (len(self.frames), *shape)):
            raise ValueError(f"{file}: expected shape {expected}, got {array.shape}. {command}")
        return array


def histograms(frames: Frames, progress: Progress = iter) -> NDArray:
    """(P, B) int32: the pixels of every frame in each bin."""
    depths = (maps.released_depth(frames.depth(index)) for index in progress(range(len(frames))))
    return np.stack([maps.histogram(depth) for depth in depths]).astype(np.int32)


def measured_mask(frames: Frames, seed: int, progress: Progress = iter) -> tuple[NDArray, int, int]:
    """Return the balanced mask, uint8 (P, H, W), its pixels per bin and its number of bins."""
    bins = np.empty((len(frames), *maps.CROP), np.uint8)  # a bin fits in a byte
    for index in progress(range(len(frames))):
        bins[index] = maps.bins_of(maps.released_depth(frames.depth(index)))
    mask = maps.balanced_mask(bins, seed)
    used = np.bincount(bins[mask > 0], minlength=maps.BINS)
    return mask, int(used.max()), int((used > 0).sum())


def _chosen(
    scenes: Sequence[str], side: str, split: str, validation: float | str | None
) -> list[int]:
    """Return the frames of a split: all of its side, or whole scenes if a share is held out."""
    if isinstance(validation, str) and validation != "test":
        raise ValueError(f"validation must be null, test or a number below 1; got {validation!r}.")
    if side == "test":
        return list(range(len(scenes)))
    if validation is None or validation == "test":
        return list(range(len(scenes))) if split == "train" else []
    share = float(validation)
    _, groups = np.unique(scenes, return_inverse=True)
    groups = groups if groups.any() else np.arange(len(scenes)) // BLOCK
    held = np.floor((groups + 1) * share) > np.floor(groups * share)
    if held.all() or not held.any():
        frames = f"{held.sum()} of {len(held)} frames in {max(groups) + 1} scenes"
        raise ValueError(f"validation={share} holds out {frames}; both splits need some.")
    return np.flatnonzero(held == (split == "val")).tolist()
