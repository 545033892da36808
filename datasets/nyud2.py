"""NYUD2-DIR: indoor scenes and their depth, from the public files or from the labelled `.mat`.

    nyu2_train.csv, nyu2_test.csv    the frames, see datasets/io/nyud2_frames.py
    test_balanced_mask.npy           uint8 (frames, 228, 304): the pixels that are measured
    train_depth_histogram.npy        (frames, 100) pixels in each 0.1 m bin, or their sum (100,)

The last two are made by scripts/prepare_nyud2.py.

H, W: the crop, 228 x 304; h, w: a depth map's size, that of the model's output in training and the
crop's in evaluation; B: depth bins.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import Dataset

from datasets import depth as maps
from datasets.depth_released import seen_depth, seen_image
from datasets.io.arrays import MAX_BYTES, read_npy
from datasets.io.files import check_sum
from datasets.io.images import MAX_PIXELS
from datasets.io.manifest import manifest
from datasets.io.nyud2_frames import PREPARE, frames, read_csv

SPLITS = ("train", "val", "test")
RESAMPLING = ("once", "released")
MASK, HISTOGRAM = "test_balanced_mask.npy", "train_depth_histogram.npy"
BLOCK = 20  # consecutive frames that are held out together where no folder tells the scenes apart


class DepthDataset(Dataset):
    """{"input": (3, H, W), "target": (1, h, w) metres, "mask": (1, h, w), "meta": {"index": i}}.

    The mask, of the pixels that are measured, is there in evaluation only: for `test` the balanced
    one, for `val` every pixel from 0.7 m on.

    Arguments:
        root: the folder of the CSVs.
        output: (h, w) of a training target.
        augment: mirror, rotation and colours; by default for the train split only.
        resampling: of a training frame; "once": by one affine map, a JPEG of twice the size at half
            of it; "released": step by step as in the released code, which evaluation always is.
        validation: None: there is no val split; "test": it is the test split, as in the released
            code; a number: it is that part of the training scenes, which are not trained on.
        mask, histogram: the files that scripts/prepare_nyud2.py makes; by default in `root`.
        mat, splits: the labelled set and NYU's splits.mat, to be read instead of the CSVs' files.
        max_pixels, max_bytes: of an image before it is decoded, of what another file unpacks to.
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
        mat: str | Path | None = None,
        splits: str | Path | None = None,
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ):
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}.")
        if resampling not in RESAMPLING:
            raise ValueError(f"resampling is one of {', '.join(RESAMPLING)}; got {resampling!r}.")
        self.root, self.split, self.output = Path(root), split, (output[0], output[1])
        self.augment = split == "train" if augment is None else augment
        # Deviation: training samples a frame once instead of three times, see docs/protocol.md.
        self.once = split == "train" and resampling == "once"
        side = "test" if split == "test" or (split, validation) == ("val", "test") else "train"
        self.max_bytes = max_bytes
        self.frames = frames(self.root, side, mat, splits, self.once, max_pixels, max_bytes)
        self.numbers = _chosen(self.frames.scenes, side, split, validation)
        self.mask = self._read_mask(Path(mask or self.root / MASK)) if side == "test" else None
        self.labels = maps.bin_centers()[:, None]  # (B, 1), each as often as label_counts says
        path = Path(histogram or self.root / HISTOGRAM)
        self.label_counts = self._count(path) if split == "train" else None

    @staticmethod
    def fingerprint(
        content: bool,
        root: str | Path,
        mask: str | Path | None = None,
        histogram: str | Path | None = None,
        mat: str | Path | None = None,
        splits: str | Path | None = None,
        **_: Any,
    ) -> str:
        """Changes with the frames, the mask and the histogram."""
        beside = [mask or Path(root, MASK), histogram or Path(root, HISTOGRAM)]
        if mat is not None:
            files = [mat, splits or Path(mat).with_name("splits.mat")]
        else:
            csvs = [Path(root, f"nyu2_{side}.csv") for side in ("train", "test")]
            rows = [row for csv in csvs if csv.is_file() for row in read_csv(csv)]
            files = [*csvs, *(f"{root}/{path}" for row in rows for path in row)]
        return manifest(map(str, [*beside, *files]), content, (str(root), str(mat)))

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
            image = seen_image(image, angle, mirror)
            target = seen_depth(depth, size, angle, mirror).astype(np.float32)
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

    def _read_mask(self, path: Path) -> np.ndarray:
        shape = (len(self.frames), *maps.CROP)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such mask. Make it: {PREPARE} root={self.root}")
        again = f"Make it again: {PREPARE} root={self.root} overwrite=true"
        check_sum(path, again)
        mask = read_npy(path, self.max_bytes, again, mapped=True)
        if mask.shape != shape:
            raise ValueError(
                f"{path}: expected a mask of shape {shape}, one map for each test frame, got "
                f"{mask.shape}. {again}"
            )
        return mask

    def _count(self, path: Path) -> np.ndarray:
        """(B,) pixels of the training frames in each bin."""
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: no such histogram. Make it: {PREPARE} root={self.root}"
            )
        again = f"Make it again: {PREPARE} root={self.root} overwrite=true"
        check_sum(path, again)
        counts = read_npy(path, self.max_bytes, again)
        if counts.shape == (maps.BINS,) and len(self.numbers) == len(self.frames):
            return counts
        if counts.shape != (len(self.frames), maps.BINS):
            raise ValueError(
                f"{path}: expected {(len(self.frames), maps.BINS)}, the bins of each training "
                f"frame, got {counts.shape}. {again}"
            )
        return counts[self.numbers].sum(0)


def _chosen(
    scenes: Sequence[str], side: str, split: str, validation: float | str | None
) -> list[int]:
    """The frames of a split: all of its side, or the scenes that are, or are not, held out."""
    if isinstance(validation, str) and validation != "test":
        raise ValueError(f"validation is null, test or a number below 1, got {validation!r}")
    if side == "test":
        return list(range(len(scenes)))
    if validation is None or validation == "test":
        return list(range(len(scenes))) if split == "train" else []
    part = float(validation)
    names = sorted(set(scenes))
    group = [names.index(scene) for scene in scenes] if len(names) > 1 else None
    groups = group or [number // BLOCK for number in range(len(scenes))]
    held = [math.floor((g + 1) * part) > math.floor(g * part) for g in groups]
    if not 0 < sum(held) < len(held):
        raise ValueError(
            f"validation={part} holds out {sum(held)} of {len(held)} frames in {max(groups) + 1} "
            "scenes; take a number between 0 and 1 that leaves some on both sides."
        )
    return [number for number, out in enumerate(held) if out == (split == "val")]
