"""Ray-cast a furnished room: one ray for each pixel, all at once.

A ray is eye + t d, where d has length one along the optical axis, so t is the depth. Walls, floor
and ceiling are the far sides of the box around the eye; furniture is boxes on the floor:

    t_room = min over axes of the far side's t        t_box = max over axes of the near side's t

R: rays; B: boxes; S = 6 + B surfaces (two for each axis of the room, then the boxes). Metres; x to
the right of the room, y up, z along it.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

FOCAL = 518.9 / 480  # of NYU's camera, in image heights
PLAIN, TILES, PLANKS = range(3)
DOOR = (0.9, 2.0)  # metres wide and high: a cue to the scale, like tiles and planks


@dataclass
class Room:
    size: np.ndarray  # (3,)
    eye: np.ndarray  # (3,)
    turn: np.ndarray  # (3, 3), from the camera's axes to the room's
    low: np.ndarray  # (B, 3) corners of the furniture
    high: np.ndarray  # (B, 3)


def rays(room: Room, height: int, width: int) -> np.ndarray:
    """Return the directions (R, 3), row by row, one unit long along the optical axis."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    x = (x + 0.5 - width / 2) / (FOCAL * height)
    y = (height / 2 - y - 0.5) / (FOCAL * height)
    camera = np.stack([x, y, np.ones_like(x)], -1).reshape(-1, 3)
    return camera @ room.turn.T.astype(np.float32)


def cast(room: Room, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return depth (R,), surface (R,) and the axis (R,) that the surface is normal to."""
    inverse = 1 / np.where(np.abs(directions) < 1e-6, np.float32(1e-6), directions)
    eye = room.eye.astype(np.float32)
    far = np.maximum(-eye * inverse, (room.size.astype(np.float32) - eye) * inverse)
    axis = far.argmin(1)
    rows = np.arange(len(directions))
    depth = far[rows, axis]
    surface = 2 * axis + (directions[rows, axis] > 0)
    for number, (low, high) in enumerate(zip(room.low, room.high, strict=True)):
        a = (low.astype(np.float32) - eye) * inverse
        b = (high.astype(np.float32) - eye) * inverse
        enter, leave = np.minimum(a, b), np.maximum(a, b)
        side = enter.argmax(1)
        t = enter[rows, side]
        hit = (t > 0.1) & (t < leave.min(1)) & (t < depth)
        depth, axis = np.where(hit, t, depth), np.where(hit, side, axis)
        surface = np.where(hit, 6 + number, surface)
    return depth, surface, axis


def paint(room: Room, look: SimpleNamespace, directions: np.ndarray, hit: tuple) -> np.ndarray:
    """Return the colours (R, 3) in [0, 1] of the surfaces (rooms.sample_look) under one lamp."""
    depth, surface, axis = hit
    point = room.eye.astype(np.float32) + depth[:, None] * directions
    rows = np.arange(len(depth))
    across = np.where(axis == 0, 2, 0)  # the pattern's two directions on the surface
    along = np.where(axis == 1, 2, 1)
    u, v, period = point[rows, across], point[rows, along], look.periods[surface]
    kind = look.kinds[surface]
    lines = ((u / period) % 1 < 0.05) | ((v / period) % 1 < 0.05)
    planks = (np.floor(u / period * 4) * 0.618) % 1
    grain = 0.5 + 0.25 * np.sin(u * 9 + 2 * np.sin(v * 5)) + 0.25 * np.sin(v * 13 + 3 * u)
    share = np.select([kind == TILES, kind == PLANKS], [lines, planks], 0.25 * grain)
    begin = look.doors[surface]
    door = (begin >= 0) & (u > begin) & (u < begin + DOOR[0]) & (v < DOOR[1]) & (axis != 1)
    share = np.where(door, 1.0, share)[:, None].astype(np.float32)
    first, second = look.colours[surface].transpose(1, 0, 2)
    albedo = (1 - share) * first + share * second
    to_lamp = look.lamp.astype(np.float32) - point
    square = (to_lamp**2).sum(1)
    facing = np.abs(to_lamp[rows, axis]) / np.sqrt(square + 1e-3)
    light = look.ambient + facing * 4 / (square + 1.5)
    return np.clip(albedo * light[:, None] * look.exposure, 0, 1)
