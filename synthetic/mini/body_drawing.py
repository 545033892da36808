"""Render posed bodies: a z-buffer of points sampled on the triangles, shaded and dressed.

Every triangle that faces the camera is covered with a grid of points closer than a pixel. A pixel
shows the point nearest to the camera: depth and triangle index are packed into one integer, and the
largest is kept. Pictures are rendered at twice the size and averaged down.

V: vertices; F: triangles; S: side of the picture in pixels.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

GRID = 6  # points along a triangle's side
_I, _J = np.nonzero(np.tri(GRID)[::-1])
BARYCENTRIC = np.stack([_I, _J, GRID - 1 - _I - _J], 1).astype(np.float32) / (GRID - 1)  # (P, 3)
# Clothes of each joint's segment of the body: 0 skin, 1 shirt, 2 trousers, 3 shoes, 4 sleeve.
WEAR = np.array([2, 2, 2, 1, 2, 2, 1, 3, 3, 1, 3, 3, 0, 1, 1, 0, 1, 1, 4, 4, 0, 0, 0, 0])
HAIR = 5
SKINS = [[240, 205, 180], [224, 178, 146], [190, 142, 106], [140, 96, 68], [96, 64, 48]]
HAIRS = [[30, 24, 20], [70, 46, 30], [120, 84, 50], [190, 160, 110]]


def garments(template: NDArray, faces: NDArray, weights: NDArray) -> NDArray:
    """Return what covers each triangle (F,): WEAR, or HAIR on the top and back of the head."""
    owner = weights[faces].sum(1).argmax(1)
    middle = template[faces].mean(1)
    head = owner == 15
    top, face = middle[head, 1].max(), middle[head, 2].max()
    hairy = head & ((middle[:, 1] > top - 0.07) | (middle[:, 2] < face - 0.11))
    return np.where(hairy, HAIR, WEAR[owner])


def render_person(
    points: NDArray, faces: NDArray, covers: NDArray, size: int, rng: np.random.Generator
) -> NDArray:
    """Return the picture (S, S, 3), uint8 RGB, of points (V, 3) in pixels and depth."""
    picture = cv2.resize(_background(size, rng), (2 * size, 2 * size))
    corners = points[faces] * np.array([2, 2, 1])  # (F, 3, 3)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-9
    shown = np.flatnonzero(normal[:, 2] < 0)  # the camera looks along +z
    number, pixel = nearest(corners[shown], 2 * size)
    light = np.array([rng.uniform(-0.7, 0.7), rng.uniform(-0.9, -0.2), -1.0])
    shade = 0.45 + 0.6 * np.clip(normal[shown] @ (light / np.linalg.norm(light)), 0, 1)
    colours = _palette(rng)[covers[shown]] * shade[:, None]
    picture.reshape(-1, 3)[pixel] = np.clip(colours[number], 0, 255)
    small = cv2.resize(picture, (size, size), interpolation=cv2.INTER_AREA)
    noisy = small + rng.normal(0, rng.uniform(2, 8), small.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def nearest(corners: NDArray, size: int) -> tuple[NDArray, NDArray]:
    """Return the nearest triangle (P,) of each covered pixel, and these pixels (P,).

    corners: (F, 3, 3) of the triangles; points outside the picture are skipped.
    """
    dots = np.einsum("pc,fcx->fpx", BARYCENTRIC, corners.astype(np.float32))
    x, y = np.floor(dots[..., :2]).astype(np.int64).reshape(-1, 2).T
    depth = dots[..., 2].ravel()
    number = np.repeat(np.arange(len(corners)), len(BARYCENTRIC))
    inside = (x >= 0) & (x < size) & (y >= 0) & (y < size)
    low, high = depth.min(initial=0), depth.max(initial=1)
    near = ((high - depth) / (high - low + 1e-9) * 2**20).astype(np.int64) + 1
    key = ((near << 20) | number)[inside]
    buffer = np.zeros(size * size, np.int64)
    np.maximum.at(buffer, (y * size + x)[inside], key)
    pixel = np.flatnonzero(buffer)
    return buffer[pixel] & (2**20 - 1), pixel


def _palette(rng: np.random.Generator) -> NDArray:
    """Sample the colours (6, 3) of skin, shirt, trousers, shoes, sleeves and hair."""
    skin = np.array(SKINS[rng.integers(len(SKINS))], float)
    shirt, trousers, shoes = rng.uniform(20, 240, (3, 3))
    sleeve = shirt if rng.random() < 0.5 else skin
    return np.stack([skin, shirt, trousers, shoes, sleeve, HAIRS[rng.integers(len(HAIRS))]])


def _background(size: int, rng: np.random.Generator) -> NDArray:
    """Sample a background (S, S, 3): a gradient of two colours with some boxes."""
    ends = rng.uniform(30, 225, (2, 1, 3))
    slope = np.linspace(0, 1, size)[:, None]
    picture = np.repeat((ends[0] * (1 - slope) + ends[1] * slope)[:, None], size, 1)
    picture = picture.astype(np.float32)
    for _ in range(rng.integers(0, 5)):
        x, y, w, h = rng.integers(0, size, 4)
        colour = rng.uniform(30, 225, 3).tolist()
        cv2.rectangle(picture, (int(x), int(y)), (int(x + w // 2), int(y + h // 2)), colour, -1)
    return picture
