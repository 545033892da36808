"""What the released depth code does to a frame, step by step and pixel by pixel.

    short side to 240 (PIL: the image by its triangle filter, the depth at the nearest pixel),
    mirror, rotation by a spline of order 2, centre crop, and in training the depth to the size of
    the model's output by PIL's bicubic filter

Evaluation sees every frame so, and training with `resampling="released"` (preset `official`);
otherwise training uses the one affine map of datasets/depth.py.

H, W: the crop that the network sees, 228 x 304; h, w: the size of a depth map.
"""

import numpy as np
from PIL import Image
from scipy.ndimage import rotate

from datasets.depth import CROP, SHORT_SIDE

NEAREST, BILINEAR, BICUBIC = (
    Image.Resampling.NEAREST,
    Image.Resampling.BILINEAR,
    Image.Resampling.BICUBIC,
)
SPLINE = 2  # order


def seen_image(image: np.ndarray, angle: float = 0.0, mirror: bool = False) -> np.ndarray:
    """(., ., 3) uint8 -> (H, W, 3)."""
    return _centre(_turned(_scaled(image, BILINEAR), angle, mirror))


def seen_depth(
    depth: np.ndarray,
    out: tuple[int, int] = CROP,
    angle: float = 0.0,
    mirror: bool = False,
) -> np.ndarray:
    """(., .) as stored -> (h, w)."""
    crop = _centre(_turned(_scaled(depth, NEAREST), angle, mirror))
    return crop if out == CROP else _resized(crop, out, BICUBIC)


def _scaled(array: np.ndarray, how: Image.Resampling) -> np.ndarray:
    """The short side at 240, the long one rounded down; a frame of that size stays as it is."""
    height, width = array.shape[:2]
    if min(height, width) == SHORT_SIDE:
        return array
    long_side = int(SHORT_SIDE * max(height, width) / min(height, width))
    size = (long_side, SHORT_SIDE) if width < height else (SHORT_SIDE, long_side)
    return _resized(array, size, how)


def _resized(array: np.ndarray, size: tuple[int, int], how: Image.Resampling) -> np.ndarray:
    return np.asarray(Image.fromarray(array).resize((size[1], size[0]), how))


def _turned(array: np.ndarray, angle: float, mirror: bool) -> np.ndarray:
    array = array[:, ::-1] if mirror else array
    return rotate(array, angle, reshape=False, order=SPLINE) if angle else array


def _centre(array: np.ndarray) -> np.ndarray:
    """The crop of an array; beyond it there is black, or no depth."""
    crop = np.zeros((*CROP, *array.shape[2:]), array.dtype)
    # Python's round goes to the even number, so an odd margin may lie on either side.
    starts = [round((have - want) / 2) for have, want in zip(array.shape, CROP, strict=False)]
    there = tuple(slice(max(0, s), max(0, s + n)) for s, n in zip(starts, CROP, strict=True))
    part = array[there]
    here = tuple(
        slice(max(0, -s), max(0, -s) + n) for s, n in zip(starts, part.shape, strict=False)
    )
    crop[here] = part
    return crop
