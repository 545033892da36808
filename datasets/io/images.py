"""Images: from encoded bytes to the network's input.

S is the side of the network's square input. A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size,
straight from its DCT coefficients, if at least S pixels a side remain.
"""

import io
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from datasets.io.files import MAX_PIXELS

# OpenCV's thread pool does not survive a fork: a data loader's worker would wait for ever.
cv2.setNumThreads(0)
Image.MAX_IMAGE_PIXELS = None  # PIL reads headers only; `imdecode` has the limit

_REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


def header(data: bytes) -> tuple[tuple[int, int], bool]:
    """Return (height, width) of an encoded image and whether it is a JPEG; (0, 0) for no image."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return (image.height, image.width), image.format in ("JPEG", "MPO")
    except Exception:  # a damaged header fails in many ways
        return (0, 0), False


def imdecode(
    data: bytes,
    source: Path | str,
    flags: int = cv2.IMREAD_COLOR,
    max_pixels: int = MAX_PIXELS,
    shape: tuple[int, int] | None = None,  # that the header states, if it is known
) -> NDArray:
    """Decode an image whose header promises at most `max_pixels`; colours are RGB.

    EXIF rotation is ignored, as in the released code. `source` is named in errors.
    """
    height, width = shape or header(data)[0]
    if height * width > max_pixels:
        limit = f"more than max_pixels={max_pixels:,}; remove its row or raise dataset.max_pixels"
        raise ValueError(f"{source}: an image of {width} x {height} pixels, {limit}.")
    flags |= cv2.IMREAD_IGNORE_ORIENTATION
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if height else None
    if image is None:
        got = f"{len(data)} bytes that do not decode (truncated or not an image)"
        advice = "Download or pack the file again, or remove its row from the CSV."
        raise ValueError(f"{source}: expected a complete image, got {got}. {advice}")
    return image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def decode(data: bytes, size: int, source: Path | str, max_pixels: int = MAX_PIXELS) -> NDArray:
    """(S, S, 3) uint8 RGB image from encoded bytes; `source` is named in errors."""
    shape, jpeg = header(data)
    factor = max(k for k in _REDUCED if k == 1 or (jpeg and min(shape) >= k * size))
    image = imdecode(data, source, _REDUCED[factor], max_pixels, shape)
    # The last row and column of an image reduced by 8 may be only partly filled.
    height, width = (side / factor for side in (shape if jpeg else image.shape[:2]))
    if (height, width) != (size, size):
        # Deviation: the released code always uses PIL's triangle filter. Below a factor of two,
        # where bilinear interpolation skips no pixel, this is four times faster; above, the area
        # average.
        how = cv2.INTER_LINEAR if max(height, width) < 2 * size else cv2.INTER_AREA
        image = cv2.resize(image, None, fx=size / width, fy=size / height, interpolation=how)
    return image[:size, :size]


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        advice = "Unpack the images below the data folder, or remove its row."
        raise FileNotFoundError(f"{path}: no such image. {advice}") from None


def augment(image: NDArray, padding: int) -> NDArray:
    """(S, S, 3) -> (S, S, 3): a random crop of the image padded with black, then a random mirror.

    Sampled from torch's generator, whose state a checkpoint holds.
    """
    size = image.shape[0]
    top, left, mirror = torch.randint(0, 2**30, (3,)).tolist()
    top, left = top % (2 * padding + 1), left % (2 * padding + 1)
    padded = cv2.copyMakeBorder(image, padding, padding, padding, padding, cv2.BORDER_CONSTANT)
    crop = padded[top : top + size, left : left + size]
    return cv2.flip(crop, 1) if mirror % 2 else crop


def to_tensor(image: NDArray) -> torch.Tensor:
    """(S, S, 3) uint8 -> (3, S, S) float32: mean .5 and std .5 of [0, 1], that is x / 127.5 - 1."""
    planes = np.ascontiguousarray(image.transpose(2, 0, 1)) * np.float32(1 / 127.5)
    planes -= 1
    return torch.from_numpy(planes)
