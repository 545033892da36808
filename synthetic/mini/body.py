"""Free body of the mini IHMR, written as SMPL's files: SMPL_*.npz, joint regressors, mean pose.

body.npz holds MakeHuman's base mesh and rig with 2,400 vertices (CC0 1.0; docs/protocol.md says
how it was made). Numbers on it cannot be compared with those on SMPL.

Pictures of posed bodies are made with a z-buffer of points sampled on the triangles. Every triangle
that faces the camera is covered with a grid of points closer than a pixel. A pixel shows the point
nearest to the camera: depth and triangle index are packed into one integer, and the largest is
kept. Pictures are rendered at twice the size and averaged down.

V: vertices; J = 24 joints; F: triangles; S: side of the picture in pixels.
"""

from functools import cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from datasets.io.arrays import read_npz

FILE = Path(__file__).with_name("body.npz")
LENGTHS = {"template": 1e-4, "man": 1e-5, "shapedirs": 1e-5}  # metres per unit of the packed int16
SHARES = {"weights": 1e-4, "regressor": 1e-4}
PARENTS = [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21]
TOP = 21  # landmark at the top of the head, which smplx does not have
# Joint regressors as means of joints, or of the top of the head.
EXTRA = [[2], [1], [12], ["top"], [0], [16, 17], [6], [15], [15, "top"]]
H36M = [[0], [1], [4], [7], [2], [5], [8], [6], [12], [15], ["top"], [16], [18], [20], [17], [19]]
H36M += [[21]]
GRID = 6  # points along a triangle's side
_I, _J = np.nonzero(np.tri(GRID)[::-1])
BARYCENTRIC = np.stack([_I, _J, GRID - 1 - _I - _J], 1).astype(np.float32) / (GRID - 1)  # (P, 3)
# Clothes of each joint's segment of the body: 0 skin, 1 shirt, 2 trousers, 3 shoes, 4 sleeve.
WEAR = np.array([2, 2, 2, 1, 2, 2, 1, 3, 3, 1, 3, 3, 0, 1, 1, 0, 1, 1, 4, 4, 0, 0, 0, 0])
HAIR = 5
SKINS = [[240, 205, 180], [224, 178, 146], [190, 142, 106], [140, 96, 68], [96, 64, 48]]
HAIRS = [[30, 24, 20], [70, 46, 30], [120, 84, 50], [190, 160, 110]]


@cache
def body() -> dict[str, NDArray]:
    """Return template (V, 3), man (V, 3), shapedirs (V, 3, 10), all in metres, faces,
    weights (V, J), regressor (J, V) and landmarks (22,)."""
    arrays = read_npz(FILE)
    for name, unit in {**LENGTHS, **SHARES}.items():
        arrays[name] = arrays[name].astype(np.float32) * np.float32(unit)
    for name in SHARES:
        arrays[name] /= arrays[name].sum(1, keepdims=True)
    return arrays


def smpl_arrays(gender: str) -> dict[str, NDArray]:
    """Return the arrays of SMPL_<GENDER>.npz for neutral, male or female."""
    parts = body()
    side = {"neutral": 0, "male": 1, "female": -1}[gender]
    vertices = len(parts["template"])
    return {
        "v_template": parts["template"] + side * parts["man"],
        "shapedirs": parts["shapedirs"],
        "posedirs": np.zeros((vertices, 3, 207), np.float32),  # no pose-dependent bulging
        "J_regressor": parts["regressor"],
        "weights": parts["weights"],
        "kintree_table": np.array([PARENTS, range(24)], np.int64),
        "f": parts["faces"].astype(np.int64),
        "vertex_ids": parts["landmarks"][:TOP].astype(np.int64),
    }


def regressor(rows: list[list]) -> NDArray:
    """Return a regressor (R, V) whose rows are means of joints, or of the top of the head."""
    parts = body()
    top = np.eye(1, len(parts["template"]), int(parts["landmarks"][TOP]), dtype=np.float32)
    joints = {"top": top[0], **dict(enumerate(parts["regressor"]))}
    return np.stack([np.mean([joints[name] for name in row], 0) for row in rows])


def write_body(folder: Path, mean_pose: NDArray) -> None:
    """Write the body's files to `folder`; mean_pose (24, 3, 3) are the mean rotations."""
    for gender in ("neutral", "male", "female"):
        with (folder / f"SMPL_{gender.upper()}.npz").open("wb") as file:
            np.savez_compressed(file, **smpl_arrays(gender))  # pyright: ignore[reportArgumentType]
    np.save(folder / "J_regressor_extra.npy", regressor(EXTRA))
    np.save(folder / "J_regressor_h36m.npy", regressor(H36M))
    np.savez(
        folder / "smpl_mean_params.npz",
        pose=mean_pose[:, :, :2].reshape(144).astype(np.float32),
        shape=np.zeros(10, np.float32),
        cam=np.array([0.9, 0, 0], np.float32),
    )


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
