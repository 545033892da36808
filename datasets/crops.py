"""Square crops around a person, and their labels under rotation and mirroring.

SPIN's conventions: a box of 200 * scale pixels around `center` becomes S x S. Pixels, keypoints,
3-D joints and the root's orientation are rotated by `rotation` degrees and then mirrored.

J: joints; M = diag(-1, 1, 1), the mirror.
"""

from typing import NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

# Left and right are swapped: SMPL's joints, OpenPose's 25, and the 24 of ground truth.
FLIP_POSE = [0, 2, 1, 3, 5, 4, 6, 8, 7, 9, 11, 10, 12, 14, 13, 15, 17, 16, 19, 18, 21, 20, 23, 22]
FLIP_24 = [5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6, 12, 13, 14, 15, 16, 17, 18, 19, 21, 20, 23, 22]
FLIP_25 = [0, 1, 5, 6, 7, 2, 3, 4, 8, 12, 13, 14, 9, 10, 11, 16, 15, 18, 17, 22, 23, 24, 19, 20, 21]
FLIP_49 = FLIP_25 + [25 + joint for joint in FLIP_24]
MIRROR = np.diag([-1.0, 1.0, 1.0]).astype(np.float32)


class View(NamedTuple):
    """Augmentation of a sample."""

    flip: bool = False
    gain: tuple[float, ...] = (1.0, 1.0, 1.0)  # of each colour
    rotation: float = 0.0  # degrees
    scale: float = 1.0


def random_view(turned: float) -> View:
    """Sample SPIN's augmentation, which rotates this share, from torch's generator."""
    uniform, normal = torch.rand(5).tolist(), torch.randn(2).tolist()
    return View(
        flip=uniform[0] < 0.5,
        gain=tuple(0.6 + 0.8 * u for u in uniform[2:]),
        rotation=float(np.clip(30 * normal[0], -60, 60)) if uniform[1] < turned else 0.0,
        scale=float(np.clip(1 + 0.25 * normal[1], 0.75, 1.25)),
    )


def affine(center: NDArray, scale: float, rotation: float, size: int) -> NDArray:
    """(2, 3): pixels of the image to pixels of the S x S crop."""
    zoom = size / (200 * scale)
    linear = zoom * _turn(rotation)
    return np.column_stack([linear, size / 2 - linear @ center])


def crop(
    image: NDArray, center: NDArray, scale: float, view: View, size: int, one_warp: bool = False
) -> NDArray:
    """(H, W, 3) uint8 -> (S, S, 3) uint8; outside the image it is black.

    A large box is cut out at a multiple of S, averaged down and then mirrored. With `one_warp` all
    is one interpolation, as in MMHuman3D; a mirrored image is then one pixel further to the right,
    as its keypoints are.
    """
    times = 1 if one_warp else max(1, int(200 * scale * view.scale / size))
    matrix = affine(center, scale * view.scale, view.rotation, times * size)
    if view.flip and one_warp:
        matrix[0] = [0, 0, size] - matrix[0]
    cut = cv2.warpAffine(image, matrix, (times * size, times * size), flags=cv2.INTER_LINEAR)
    cut = cut if times == 1 else cv2.resize(cut, (size, size), interpolation=cv2.INTER_AREA)
    cut = cv2.flip(cut, 1) if view.flip and not one_warp else cut
    if view.gain == (1.0, 1.0, 1.0):
        return cut
    return np.clip(cut * np.array(view.gain, np.float32), 0, 255).astype(np.uint8)


def crop_keypoints(keypoints: NDArray, center: NDArray, scale: float, view: View) -> NDArray:
    """(49, 3) pixels and confidence -> the same in the crop, which spans [-1, 1]."""
    matrix = affine(center, scale * view.scale, view.rotation, 2)
    moved = keypoints.copy()
    moved[:, :2] = keypoints[:, :2] @ matrix[:, :2].T + matrix[:, 2] - 1
    return _mirrored(moved, FLIP_49) if view.flip else moved


def turn_joints(joints: NDArray, view: View) -> NDArray:
    """(24, 4) metres and confidence -> the same in the view."""
    moved = joints.copy()
    moved[:, :2] = joints[:, :2] @ _turn(view.rotation).T
    return _mirrored(moved, FLIP_24) if view.flip else moved


def _mirrored(points: NDArray, order: list[int]) -> NDArray:
    """(J, .) -> the same with -x, left and right swapped."""
    points = points[order]
    points[:, 0] *= -1
    return points


def turn_pose(rotations: NDArray, view: View) -> NDArray:
    """(24, 3, 3) -> the same in the view: the root is rotated, a mirror image is M R M."""
    moved = rotations.copy()
    moved[0, :2] = _turn(view.rotation) @ rotations[0, :2]
    return MIRROR @ moved[FLIP_POSE] @ MIRROR if view.flip else moved


def _turn(degrees: float) -> NDArray:
    """(2, 2) counter-clockwise rotation in image coordinates, where y points down."""
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[cosine, sine], [-sine, cosine]], np.float32)
