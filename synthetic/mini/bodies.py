"""Mini IHMR: pictures of a free body, in the on-disk format of SPIN's data.

    SMPL_{NEUTRAL,MALE,FEMALE}.npz  J_regressor_{extra,h36m}.npy  smpl_mean_params.npz
    h36m_train.npz      people with true poses and 3-D joints
    coco_2014_train.npz people with keypoints alone; static_fits/coco_fits.npy are their estimates
    3dpw_test.npz       men and women with true poses

The poses are sampled (poses.py) or read from a file of motion capture; the rare ones are rare in
training and in the test alike.

N: people; S: side of a picture in pixels.
"""

import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import roma
import torch
from numpy.typing import NDArray

from models.smpl import SMPL
from synthetic.mini.body import body, write_body
from synthetic.mini.body_drawing import draw_person, garments
from synthetic.mini.folder import Progress, whole_folder
from synthetic.mini.poses import draw_poses, read_poses

VERSION = 1  # of the drawing; a new one makes old folders be drawn again
DEAL = 2  # of motion capture's sequences to the sets, likewise
SETS = {"h36m_train": 0, "coco_2014_train": 1, "3dpw_test": 2}
TEST_SHARE = 0.25  # of the sequences of a motion-capture file


def write_bodies(
    folder: str | Path,
    counts: dict[str, int],
    size: int,
    seed: int,
    poses: str | None = None,
    progress: Progress = iter,
) -> bool:
    """Draw a dataset into `folder`, whole or not at all; False if it is there already.

    Arguments:
        counts: people of each of SETS.
        poses: an npz of motion capture to take the poses from; None draws them.
    """
    version = VERSION if poses is None else [VERSION, DEAL]
    settings = {"version": version, "counts": counts, "size": size, "seed": seed, "poses": poses}
    with whole_folder(folder, settings) as work:
        if work is None:
            return False
        pools = _pools(counts, seed, poses)
        trained = np.concatenate([pools[name][0] for name in counts if name != "3dpw_test"])
        write_body(work, mean_rotation(trained))
        (work / "static_fits").mkdir()
        for name, (rotations, sequences) in pools.items():
            _write_set(work, name, rotations, sequences, size, seed, progress)
    return True


def mean_rotation(rotations: NDArray) -> NDArray:
    """(N, 24, 3, 3) -> (24, 3, 3): the rotation nearest to the mean matrix of each joint."""
    nearest: Any = roma.special_procrustes(torch.from_numpy(rotations.mean(0)))
    return nearest.numpy()


def _pools(counts: dict[str, int], seed: int, poses: str | None) -> dict[str, tuple]:
    """{set: (rotations (N, 24, 3, 3), sequences (N,))}."""
    if poses is None:
        return {
            name: (
                draw_poses(count, np.random.default_rng((seed, SETS[name]))),
                np.array([f"s{index // 4:04d}" for index in range(count)]),
            )
            for name, count in counts.items()
        }
    rng = np.random.default_rng((seed, 9))
    rotations, sequences = read_poses(poses, rng)
    pools = {}
    for name, rows in deal(sequences, counts, rng).items():
        if len(rows) < counts[name]:
            raise ValueError(
                f"{poses}: {counts[name]} poses are asked for {name}, whose sequences have "
                f"{len(rows)}."
            )
        taken = rng.permutation(rows)[: counts[name]]
        pools[name] = rotations[taken], sequences[taken]
    return pools


def deal(
    sequences: NDArray, counts: dict[str, int], rng: np.random.Generator
) -> dict[str, NDArray]:
    """{set: rows (n,)}: every sequence (N,) goes to one set whole, so that neither the test nor the
    held-out sequences of one training set have been seen in another."""
    takes, sizes = np.unique(sequences, return_counts=True)
    owner, dealt = {}, dict.fromkeys(counts, 0)
    for index in rng.permutation(len(takes)):
        take = str(takes[index])
        tested = zlib.crc32(take.encode()) % 1000 < 1000 * TEST_SHARE
        sets = [name for name in counts if (name == "3dpw_test") == tested]
        if sets:  # to the one that is furthest from what it asks for
            name = min(sets, key=lambda one: dealt[one] / max(counts[one], 1))
            owner[take], dealt[name] = name, dealt[name] + int(sizes[index])
    owners = np.array([owner.get(one) for one in sequences])
    return {name: np.flatnonzero(owners == name) for name in counts}


def _write_set(
    work: Path,
    name: str,
    rotations: NDArray,
    sequences: NDArray,
    size: int,
    seed: int,
    progress: Progress,
) -> None:
    count, rng = len(rotations), np.random.default_rng((seed, 10 + SETS[name]))
    shape = np.clip(rng.normal(0, 1, (count, 10)), -2.5, 2.5).astype(np.float32)
    gender = rng.choice(["m", "f"], count) if name == "3dpw_test" else np.full(count, "")
    vertices, joints = _posed(work, rotations, shape, gender)
    middle = (vertices.max(1) + vertices.min(1))[:, :2] / 2  # (N, 2)
    extent = (vertices.max(1) - vertices.min(1))[:, :2].max(1)  # metres
    zoom = size * rng.uniform(0.62, 0.8, count) / extent  # pixels a metre
    center = size * (0.5 + rng.uniform(-0.05, 0.05, (count, 2)))
    names = [f"images/{name}/{one}_{index:05d}.jpg" for index, one in enumerate(sequences)]
    (work / "images" / name).mkdir(parents=True)
    parts = body()
    covers = garments(parts["template"], parts["faces"], parts["weights"])

    def to_pixels(points: NDArray, person: int) -> NDArray:
        flat = (points[..., :2] - middle[person]) * zoom[person] + center[person]
        return np.concatenate([flat, points[..., 2:] * zoom[person]], -1)

    for index in progress(range(count)):
        points = to_pixels(vertices[index], index)
        own = np.random.default_rng((seed, 20 + SETS[name], index))
        picture = draw_person(points, parts["faces"], covers, size, own)
        bgr = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
        encoded = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, 92])[1]
        (work / names[index]).write_bytes(encoded.tobytes())
    pixels = np.stack([to_pixels(joints[i], i) for i in range(count)])  # (N, 49, 3)
    pixels[..., 2] = 1  # the confidence
    pose = roma.rotmat_to_rotvec(torch.from_numpy(rotations)).reshape(count, 72).numpy()
    arrays = {
        "imgname": np.array(names),
        "center": center.astype(np.float32),
        "scale": (1.2 * extent * zoom / 200).astype(np.float32),
        "part": pixels[:, 25:].astype(np.float32),
        "openpose": (pixels[:, :25] * [1, 1, 0.9]).astype(np.float32),
    }
    if name == "coco_2014_train":
        noise = rng.normal(0, 0.04, (count, 82))
        fits = np.concatenate([pose, shape], 1) + noise
        np.save(work / "static_fits" / "coco_fits.npy", fits.astype(np.float32))
    else:
        centred = joints[:, 25:] - joints[:, 25 + 14, None]  # about the pelvis
        ones = np.ones((count, 24, 1))
        arrays |= {"pose": pose.astype(np.float32), "shape": shape}
        arrays |= {"has_smpl": np.ones(count, np.uint8)}
        arrays |= {"S": np.concatenate([centred, ones], -1).astype(np.float32)}
    if name == "3dpw_test":
        arrays["gender"] = gender
    np.savez(work / f"{name}.npz", **arrays)  # pyright: ignore[reportArgumentType]


@torch.no_grad()
def _posed(
    work: Path, rotations: NDArray, shape: NDArray, gender: NDArray
) -> tuple[NDArray, NDArray]:
    """Vertices (N, V, 3) and joints (N, 49, 3) of bodies of each person's gender."""
    names = {"m": "male", "f": "female", "": "neutral"}
    out = [
        np.zeros((len(shape), points, 3), np.float32) for points in (len(body()["template"]), 49)
    ]
    for letter in np.unique(gender):
        smpl, rows = SMPL(work, names[str(letter)]), np.flatnonzero(gender == letter)
        for some in np.array_split(rows, -(-len(rows) // 64)):
            posed = smpl(torch.from_numpy(rotations[some]).float(), torch.from_numpy(shape[some]))
            for table, points in zip(out, posed, strict=True):
                table[some] = points.numpy()
    return out[0], out[1]
