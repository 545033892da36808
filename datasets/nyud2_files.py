"""What NYUD2-DIR needs beside its frames, and the frames themselves from the labelled `.mat`.

P frames of 228 x 304 pixels; B = 100 depth bins.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import cv2
import numpy as np

from datasets import depth as maps
from datasets.depth_released import seen_depth
from datasets.io.nyud2_frames import MatFrames, PngFrames

Progress = Callable[[Iterable[int]], Iterable[int]]
Write = Callable[[Path, bytes], None]
_QUALITY = [cv2.IMWRITE_JPEG_QUALITY, 95]


def histograms(frames: PngFrames | MatFrames, progress: Progress = iter) -> np.ndarray:
    """(P, B) int32: the pixels of every frame in each bin."""
    each = [
        maps.histogram(seen_depth(frames.depth(index))) for index in progress(range(len(frames)))
    ]
    return np.stack(each).astype(np.int32)


def measured_mask(
    frames: PngFrames | MatFrames, seed: int, progress: Progress = iter
) -> tuple[np.ndarray, int, int]:
    """uint8 (P, 228, 304), the balanced mask; how many pixels it has of a bin, and of how many."""
    bins = np.empty((len(frames), *maps.CROP), np.uint8)  # a bin fits in a byte
    for index in progress(range(len(frames))):
        bins[index] = maps.bins_of(seen_depth(frames.depth(index)))
    mask = maps.balanced_mask(bins, seed)
    used = np.bincount(bins[mask > 0], minlength=maps.BINS)
    return mask, int(used.max()), int((used > 0).sum())


def encode(image: np.ndarray, depth: np.ndarray, side: str) -> dict[str, bytes]:
    """{".jpg", ".png"}: RGB and metres as the files of a train (8-bit) or test (16-bit) frame."""
    scale, kind = (255 / 10, np.uint8) if side == "train" else (1000, np.uint16)
    values = np.clip(np.round(depth * scale), 0, np.iinfo(kind).max).astype(kind)
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    return {
        ".jpg": cv2.imencode(".jpg", bgr, _QUALITY)[1].tobytes(),
        ".png": cv2.imencode(".png", values)[1].tobytes(),
    }


def unpack(
    frames: MatFrames, root: Path, side: str, write: Write, progress: Progress = iter
) -> None:
    """The frames of the `.mat` as files, those that are not there yet, and then their CSV."""
    lines = []
    for index in progress(range(len(frames))):
        name = f"nyu2_{side}/{frames.numbers[index]:04d}"
        lines.append(f"data/{name}.jpg,data/{name}.png\n")
        if not (root / f"{name}.png").is_file():  # which is written last
            for ending, data in encode(frames[index].image, frames.depth(index), side).items():
                write(root / f"{name}{ending}", data)
    write(root / f"nyu2_{side}.csv", "".join(lines).encode())
