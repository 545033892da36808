"""Depth maps: what is done to an image and its depth together, and the bins of NYUD2-DIR.

Everything that moves pixels (scale the short side to 240, mirror, rotate, cut out the centre) is
one affine map from the output's pixels to the file's, so each array is sampled once: the image
bilinearly, the depth at the nearest pixel. Everything that changes colours (lighting, brightness,
contrast, saturation, normalisation) is affine in RGB, so it is one 3 x 4 matrix.

H, W: the crop that the network sees, 228 x 304; h, w: the size of a depth map; B: depth bins.
"""

import math

import cv2
import numpy as np
import torch

SHORT_SIDE = 240
CROP = (228, 304)  # H, W
BINS, BINS_PER_METRE, FIRST_BIN = 100, 10, 7  # nothing under 0.7 m counts
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
) -> np.ndarray:
    """(2, 3): pixels (x, y, 1) of an output of size `out`, which shows the crop, -> of the source.

    The source (height, width) is scaled to a short side of 240 and turned about its centre first.
    """
    scale = min(source) / SHORT_SIDE  # source pixels per pixel of the scaled frame
    step_x, step_y = CROP[1] / out[1] * scale, CROP[0] / out[0] * scale
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    turn = np.array([[cos, -sin], [sin, cos]])
    grow = np.diag([-step_x if mirror else step_x, step_y])
    linear = turn @ grow
    middle_out = np.array([(out[1] - 1) / 2, (out[0] - 1) / 2])
    middle_source = np.array([(source[1] - 1) / 2, (source[0] - 1) / 2])
    return np.column_stack([linear, middle_source - linear @ middle_out])


def sample(array: np.ndarray, out: tuple[int, int], where: np.ndarray, nearest: bool) -> np.ndarray:
    """(., .) or (., ., 3) -> (h, w) or (h, w, 3); beyond the source it is black, or depth zero."""
    how = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    return cv2.warpAffine(array, where, (out[1], out[0]), flags=how | cv2.WARP_INVERSE_MAP)


def random_colours(mean: np.ndarray) -> np.ndarray:
    """(3, 4): lighting, then brightness, contrast and saturation in a random order.

    `mean` (3,) is the image's mean colour in [0, 1]. Draws come from torch's generator.
    """
    steps = torch.randperm(3).tolist()
    amounts = (1 + JITTER * (2 * torch.rand(3) - 1)).tolist()
    matrix = np.eye(3, 4)  # of (r, g, b, 1)
    matrix[:, 3] = _LIGHTS @ (LIGHTING * torch.randn(3)).numpy()
    for step, amount in zip(steps, amounts, strict=True):
        grey = _GREY @ matrix  # (4,): each pixel's grey
        matrix *= amount  # brightness, or the part that stays
        if step == 1:  # contrast: towards the mean grey
            matrix[:, 3] += (1 - amount) * (grey[:3] @ mean + grey[3])
        elif step == 2:  # saturation: towards each pixel's grey
            matrix += (1 - amount) * grey
    return matrix


def to_tensor(image: np.ndarray, colours: np.ndarray | None = None) -> torch.Tensor:
    """(H, W, 3) uint8 RGB -> (3, H, W) float32 with ImageNet's mean and standard deviation."""
    matrix = np.eye(3, 4) if colours is None else colours
    matrix = np.column_stack([matrix[:, :3] / 255, matrix[:, 3] - _MEAN]) / _STD[:, None]
    values = cv2.transform(image.astype(np.float32), matrix.astype(np.float32))
    planes = np.empty((3, *image.shape[:2]), np.float32)
    for channel, plane in enumerate(cv2.split(values)):
        planes[channel] = plane
    return torch.from_numpy(planes)


def to_image(tensor: torch.Tensor) -> np.ndarray:
    """The inverse of `to_tensor`: (3, H, W) -> (H, W, 3) uint8."""
    values = tensor.float().cpu().numpy().transpose(1, 2, 0) * _STD + _MEAN
    return (values.clip(0, 1) * 255).round().astype(np.uint8)


def bins_of(depth: np.ndarray) -> np.ndarray:
    """min(floor(10 depth), 99), the product in float32 so that 0.7 m opens bin 7: same shape."""
    position = np.asarray(depth, np.float32) * np.float32(BINS_PER_METRE)
    return np.minimum(position.astype(np.int64), BINS - 1)


def histogram(depth: np.ndarray) -> np.ndarray:
    """(B,) pixels of each bin; those under 0.7 m, which are missing or too near, do not count."""
    counts = np.bincount(bins_of(depth).ravel(), minlength=BINS)
    counts[:FIRST_BIN] = 0
    return counts


def bin_centers() -> np.ndarray:
    """(B,) metres."""
    return (np.arange(BINS) + 0.5) / BINS_PER_METRE


def balanced_mask(bins: np.ndarray, seed: int) -> np.ndarray:
    """uint8 of the shape of `bins`: as many pixels of every bin 7..99 as the rarest of them has.

    Bins without any pixel stay empty. Pixels are drawn without replacement.
    """
    flat = bins.ravel()
    counts = np.bincount(flat, minlength=BINS)[FIRST_BIN:]
    if not counts.any():
        raise ValueError(f"expected depths of at least {NEAREST} m, got none: nothing to balance")
    least = counts[counts > 0].min()
    rng = np.random.default_rng(seed)
    order = np.argsort(flat, kind="stable")  # the pixels of one bin after those of another
    starts = np.searchsorted(flat[order], np.arange(BINS + 1))
    mask = np.zeros(flat.shape, np.uint8)
    for bin in np.flatnonzero(counts) + FIRST_BIN:
        members = order[starts[bin] : starts[bin + 1]]
        mask[rng.choice(members, least, replace=False)] = 1
    return mask.reshape(bins.shape)
