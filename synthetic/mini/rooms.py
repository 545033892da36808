"""Mini NYUD2-DIR: ray-cast rooms in the real on-disk format, with NYUD2's histogram of depth.

Most rooms are small, few are halls. Tiles, planks and doors have realistic sizes, so the scale is
visible but uncertain: the best prediction from an image regresses to the frequent depths, as on
real data. Candidate rooms are sampled, and kept with probabilities w that make the depths of all
rooms together follow NYUD2's p; expectation-maximisation fits w to the rooms' histograms h_r,

    w_r <- w_r sum_b p_b h_rb / sum_r' w_r' h_r'b.

A room is ray-cast, one ray for each pixel, all at once. A ray is eye + t d, where d has length one
along the optical axis, so t is the depth. Walls, floor and ceiling are the far sides of the box
around the eye; furniture is boxes on the floor:

    t_room = min over axes of the far side's t        t_box = max over axes of the near side's t

R: rays; B: boxes; S = 6 + B surfaces (two for each axis of the room, then the boxes). Metres; x to
the right of the room, y up, z along it.
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from datasets import depth as maps
from datasets.io.files import Progress
from datasets.io.nyud2_frames import Frames, encode
from datasets.nyud2 import HISTOGRAM, MASK, histograms, measured_mask
from synthetic.mini.folder import generate

VERSION = 1  # of the frames; a new version regenerates old folders
HEIGHT, WIDTH = 240, 320
COARSE = (12, 16)  # rays for a candidate's histogram
PER_ROOM = 8  # candidates per room that is kept
ROUNDS = 40  # of expectation-maximisation; few, so many rooms keep some weight
FOCAL = 518.9 / 480  # of NYU's camera, in image heights
PLAIN, TILES, PLANKS = range(3)
DOOR = (0.9, 2.0)  # metres wide and high: a cue to the scale, like tiles and planks

# NYUD2-DIR's training pixels in the 0.1 m bins from 0.7 m on, in thousandths of a percent.
_SHARES = """
736 704 1518 1967 1550 2722 2032 3337 2414 3601 2405 3789 2717 4157 4159 2748 3938 2553 3634 2323
3391 2117 3041 2778 1899 2581 1511 2372 1462 2028 1202 1875 1093 1527 1538 807 1181 914 1023 682
911 549 897 617 466 733 363 503 374 450 272 425 275 367 336 218 328 221 257 146 246 195 228 183 94
180 99 160 115 109 92 128 73 133 90 84 79 67 72 67 71 49 86 66 56 58 53 58 38 71 37 95 32
"""


def depth_frequencies() -> np.ndarray:
    """Return the probabilities (100,) of NYUD2-DIR's 0.1 m bins."""
    shares = np.array(_SHARES.split(), float)
    return np.concatenate([np.zeros(maps.FIRST_BIN), shares / shares.sum()])


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
    """Return the colours (R, 3) in [0, 1] of the surfaces (sample_look) under one lamp."""
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


def sample_room(rng: np.random.Generator) -> Room:
    """Sample a room with furniture and a camera that mostly looks along it."""
    long = float(np.exp(rng.uniform(np.log(1.8), np.log(12))))
    size = np.array([rng.uniform(2, 3 + long / 2), rng.uniform(2.3, 3.2), long])
    eye = size * [rng.uniform(0.2, 0.8), 0, rng.uniform(0.03, 0.3)]
    eye[1] = rng.uniform(0.9, 1.7)
    yaw, pitch = rng.normal(0, 0.45), rng.normal(-0.12, 0.1)
    c, s, d, e = np.cos(yaw), np.sin(yaw), np.cos(pitch), np.sin(pitch)
    turned = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
    turn = turned @ np.array([[1, 0, 0], [0, d, e], [0, -e, d]])
    boxes = rng.integers(1, 8)
    extent = rng.uniform([0.3, 0.4, 0.3], [1.6, 1.9, 1.6], (boxes, 3))
    low = rng.uniform(0, 1, (boxes, 3)) * np.maximum(size - extent, 0.1) * [1, 0, 1]
    apart = np.maximum(low - eye, eye - low - extent)[:, [0, 2]].max(1) > 0.4  # not around the eye
    return Room(size, eye, turn, low[apart], (low + extent)[apart])


def sample_look(room: Room, rng: np.random.Generator) -> SimpleNamespace:
    """Sample colours, patterns, doors and light for the room's S = 6 + B surfaces."""
    surfaces = 6 + len(room.low)
    first = rng.uniform(0.25, 0.95, (surfaces, 1)) + rng.normal(0, 0.1, (surfaces, 3))
    second = first * rng.uniform(0.4, 0.8, (surfaces, 1)) + rng.normal(0, 0.05, (surfaces, 3))
    first[[0, 1, 4, 5]] = first[0] + rng.normal(0, 0.02, (4, 3))  # four walls of one colour
    kinds = np.full(surfaces, PLAIN)
    kinds[2] = rng.choice([TILES, PLANKS])  # the floor
    kinds[3] = rng.choice([PLAIN, TILES])
    kinds[6:] = rng.choice([PLAIN, PLANKS], surfaces - 6)
    if rng.random() < 0.25:
        kinds[[0, 1, 4, 5]] = TILES
    periods = np.full(surfaces, 0.6)
    periods[2] = 0.45 if kinds[2] == TILES else 0.6
    doors = np.full(surfaces, -1.0)
    for wall, length in zip((0, 1, 4, 5), room.size[[2, 2, 0, 0]], strict=True):
        if rng.random() < 0.6:
            doors[wall] = rng.uniform(0, max(length - 1, 0.01))
    return SimpleNamespace(
        colours=np.clip(np.stack([first, second], 1), 0.03, 1).astype(np.float32),  # (S, 2, 3)
        kinds=kinds,  # (S,) PLAIN, TILES or PLANKS
        periods=periods.astype(np.float32),  # (S,) metres
        doors=doors.astype(np.float32),  # (S,) start of a door along the wall; negative: none
        lamp=room.size * [rng.uniform(0.3, 0.7), 0.95, rng.uniform(0.2, 0.8)],
        ambient=rng.uniform(0.35, 0.6),
        exposure=(rng.uniform(0.8, 1.2) * rng.uniform(0.92, 1.08, 3)).astype(np.float32),
        noise=rng.uniform(1, 5),
    )


def frame(seed: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return a room's image (240, 320, 3), uint8 RGB, and depth (240, 320), zero beyond 10 m."""
    room = sample_room(np.random.default_rng(seed))
    rng = np.random.default_rng((*seed, 1))
    directions = rays(room, HEIGHT, WIDTH)
    hit = cast(room, directions)
    look = sample_look(room, rng)
    image = 255 * paint(room, look, directions, hit).reshape(HEIGHT, WIDTH, 3)
    image += look.noise * rng.standard_normal(image.shape, np.float32)
    depth = hit[0].reshape(HEIGHT, WIDTH)
    return np.clip(image, 0, 255).astype(np.uint8), np.where(depth <= 10, depth, 0)


def choose_rooms(count: int, seed: int) -> np.ndarray:
    """Choose (count,) different candidates whose depths together follow NYUD2's."""
    each = []
    for number in range(PER_ROOM * count):
        room = sample_room(np.random.default_rng((seed, number)))
        depth = cast(room, rays(room, *COARSE))[0]
        each.append(maps.histogram(np.where(depth <= 10, depth, 0)) + 1e-3)
    share = np.stack(each)[:, maps.FIRST_BIN :]
    weight, target = np.ones(len(share)), depth_frequencies()[maps.FIRST_BIN :]
    for _ in range(ROUNDS):
        weight *= share @ (target / (weight @ share))
        weight /= weight.sum()
    rng = np.random.default_rng((seed, len(weight)))
    return rng.choice(len(weight), count, replace=False, p=weight)


def write_rooms(
    folder: str | Path, train: int, test: int, seed: int, progress: Progress = iter
) -> bool:
    """Generate training and test frames with CSVs, mask and histogram; False if the folder exists
    with the same settings."""
    settings = {"version": VERSION, "train": train, "test": test, "seed": seed}

    def fill(work: Path) -> None:
        chosen = choose_rooms(train + test, seed)
        lines = {"train": [], "test": []}
        for order, number in enumerate(progress(chosen.tolist())):
            side = "train" if order < train else "test"
            name = f"nyu2_{side}/room_{order // 20:03d}/{order:05d}"
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            for ending, data in encode(*frame((seed, number)), side).items():
                (work / f"{name}{ending}").write_bytes(data)
            lines[side].append(f"data/{name}.jpg,data/{name}.png\n")
        for side, rows in lines.items():
            (work / f"nyu2_{side}.csv").write_text("".join(rows))
        np.save(work / HISTOGRAM, histograms(Frames(work, "train")))
        np.save(work / MASK, measured_mask(Frames(work, "test"), seed)[0])

    return generate(folder, settings, fill)
