"""Depth maps: transforms of an image and its depth together, and the bins of NYUD2-DIR.

Training samples each array once: scaling the short side to 240, mirror, rotation and centre crop
are one affine map from output to file pixels (image bilinear, depth nearest), and all colour
changes are one 3 x 4 matrix. Evaluation, and training with `resampling="released"`, follow the
released code step by step: PIL resizes, SciPy rotates by a spline of order 2.

H, W: the network's input, 228 x 304; h, w: the size of a depth map; B: depth bins.
"""

import math

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import rotate
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2.functional import resize

SHORT_SIDE = 240
CROP = (228, 304)  # H, W
BINS, BINS_PER_METRE, FIRST_BIN = 100, 10, 7  # depths under 0.7 m are ignored
NEAREST = FIRST_BIN / BINS_PER_METRE
ANGLE = 5.0  # degrees
JITTER, LIGHTING = 0.4, 0.1

_MEAN, _STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
_GREY = np.array([0.299, 0.587, 0.114])
# The principal axes of ImageNet's colours, scaled by their standard deviations.
_AXES = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)
_LIGHTS = _AXES * np.array([0.2175, 0.0188, 0.0045])


def placement(
    source: tuple[int, int], out: tuple[int, int], angle: float = 0.0, mirror: bool = False
) -> NDArray:
    """(2, 3): the affine map from pixels (x, y, 1) of the crop at size `out` to source pixels.

    The source (height, width) is scaled to a short side of 240 and rotated about its centre.
    """
    scale = min(source) / SHORT_SIDE  # source pixels per pixel of the scaled frame
    step_x, step_y = CROP[1] / out[1] * scale, CROP[0] / out[0] * scale
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    turn = np.array([[cos, -sin], [sin, cos]])
    grow = np.diag([-step_x if mirror else step_x, step_y])
    linear = turn @ grow
    centre_out = np.array([(out[1] - 1) / 2, (out[0] - 1) / 2])
    centre_source = np.array([(source[1] - 1) / 2, (source[0] - 1) / 2])
    return np.column_stack([linear, centre_source - linear @ centre_out])


def sample(array: NDArray, out: tuple[int, int], where: NDArray, nearest: bool) -> NDArray:
    """(., .) or (., ., 3) -> (h, w) or (h, w, 3); outside the source it is zero."""
    how = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    return cv2.warpAffine(array, where, (out[1], out[0]), flags=how | cv2.WARP_INVERSE_MAP)


def random_colours(mean: NDArray) -> NDArray:
    """(3, 4): lighting, then brightness, contrast and saturation in a random order.

    `mean` (3,) is the image's mean colour in [0, 1]. Sampled from torch's generator.
    """
    steps = torch.randperm(3).tolist()
    amounts = (1 + JITTER * (2 * torch.rand(3) - 1)).tolist()
    matrix = np.eye(3, 4)  # of (r, g, b, 1)
    matrix[:, 3] = _LIGHTS @ (LIGHTING * torch.randn(3)).numpy()
    for step, amount in zip(steps, amounts, strict=True):
        grey = _GREY @ matrix  # (4,): grey value of a pixel
        matrix *= amount
        if step == 1:  # contrast: towards the mean grey
            matrix[:, 3] += (1 - amount) * (grey[:3] @ mean + grey[3])
        elif step == 2:  # saturation: towards each pixel's grey
            matrix += (1 - amount) * grey
    return matrix


def to_tensor(image: NDArray, colours: NDArray | None = None) -> torch.Tensor:
    """(H, W, 3) uint8 RGB -> (3, H, W) float32 with ImageNet's mean and standard deviation."""
    matrix = np.eye(3, 4) if colours is None else colours
    matrix = np.column_stack([matrix[:, :3] / 255, matrix[:, 3] - _MEAN]) / _STD[:, None]
    values = cv2.transform(image.astype(np.float32), matrix.astype(np.float32))
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def to_image(tensor: torch.Tensor) -> NDArray:
    """Invert `to_tensor`: (3, H, W) -> (H, W, 3) uint8."""
    values = tensor.float().cpu().numpy().transpose(1, 2, 0) * _STD + _MEAN
    return (values.clip(0, 1) * 255).round().astype(np.uint8)


def released_image(image: NDArray, angle: float = 0.0, mirror: bool = False) -> NDArray:
    """(., ., 3) uint8 -> (H, W, 3), by the steps of the released code."""
    return _centre(_turn(_short_side(image, InterpolationMode.BILINEAR), angle, mirror))


def released_depth(
    depth: NDArray, out: tuple[int, int] = CROP, angle: float = 0.0, mirror: bool = False
) -> NDArray:
    """(., .) as stored -> (h, w), by the steps of the released code."""
    crop = _centre(_turn(_short_side(depth, InterpolationMode.NEAREST), angle, mirror))
    if out == CROP:
        return crop
    return np.asarray(resize(Image.fromarray(crop), [*out], InterpolationMode.BICUBIC))


def _short_side(array: NDArray, how: InterpolationMode) -> NDArray:
    """Scale the short side to 240; the long side is rounded down."""
    return np.asarray(resize(Image.fromarray(array), [SHORT_SIDE], how))


def _turn(array: NDArray, angle: float, mirror: bool) -> NDArray:
    array = array[:, ::-1] if mirror else array
    return rotate(array, angle, reshape=False, order=2) if angle else array


def _centre(array: NDArray) -> NDArray:
    """Cut out the crop; outside the array it is zero."""
    # Python's round goes to the even number, so an odd margin may lie on either side.
    top, left = (round((have - want) / 2) for have, want in zip(array.shape, CROP, strict=False))
    box = left, top, left + CROP[1], top + CROP[0]
    return np.asarray(Image.fromarray(array).crop(box))


def bins_of(depth: NDArray) -> NDArray:
    """min(floor(10 depth), 99), the product in float32 so that 0.7 m opens bin 7: same shape."""
    position = np.asarray(depth, np.float32) * np.float32(BINS_PER_METRE)
    return np.minimum(position.astype(np.int64), BINS - 1)


def histogram(depth: NDArray) -> NDArray:
    """(B,) pixels of each bin; those under 0.7 m, missing or too near, are ignored."""
    counts = np.bincount(bins_of(depth).ravel(), minlength=BINS)
    counts[:FIRST_BIN] = 0
    return counts


def bin_centers() -> NDArray:
    """(B,) metres."""
    return (np.arange(BINS) + 0.5) / BINS_PER_METRE


def balanced_mask(bins: NDArray, seed: int) -> NDArray:
    """uint8 of the shape of `bins`: as many pixels of every bin 7..99 as the rarest has.

    Empty bins stay empty. Pixels are sampled without replacement.
    """
    flat = bins.ravel()
    counts = np.bincount(flat, minlength=BINS)[FIRST_BIN:]
    if not counts.any():
        raise ValueError(f"Expected depths of at least {NEAREST} m, got none: nothing to balance.")
    least = counts[counts > 0].min()
    rng = np.random.default_rng(seed)
    order = np.argsort(flat, kind="stable")
    starts = np.searchsorted(flat[order], np.arange(BINS + 1))
    mask = np.zeros(flat.shape, np.uint8)
    for bin in np.flatnonzero(counts) + FIRST_BIN:
        members = order[starts[bin] : starts[bin + 1]]
        mask[rng.choice(members, least, replace=False)] = 1
    return mask.reshape(bins.shape)
