"""Mini IHMR: pictures of a free body, in the on-disk format of SPIN's data.

    SMPL_{NEUTRAL,MALE,FEMALE}.npz  J_regressor_{extra,h36m}.npy  smpl_mean_params.npz
    h36m_train.npz      people with true poses and 3-D joints
    coco_2014_train.npz people with keypoints only; static_fits/coco_fits.npy are their estimates
    3dpw_test.npz       men and women with true poses

Poses are sampled (poses.py) or read from a file of motion capture. Rare poses are rare in training
and test alike.

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

from datasets.io.files import Progress
from models.smpl import SMPL
from synthetic.mini.body import body, garments, render_person, write_body
from synthetic.mini.folder import generate, write_jpeg
from synthetic.mini.poses import read_poses, sample_poses

VERSION = 1  # of the pictures; a new version regenerates old folders
SPLIT_VERSION = 2  # of the split of motion capture, likewise
SETS = {"h36m_train": 0, "coco_2014_train": 1, "3dpw_test": 2}
TEST_SHARE = 0.25  # of the sequences of a motion-capture file


def write_bodies(
    folder: str | Path,
    counts: dict[str, int],
    size: int,
    seed: int,
    poses: str | None = None,
    progress: Progress = iter,
    harder: str | None = None,
) -> bool:
    """Generate a dataset; False if the folder exists with the same settings.

    counts: people of each of SETS.
    poses: npz of motion capture with the poses; None samples them.
    harder: degrade the pictures of the same people: "blur", "occlusion" or "pixels".
    """
    version = VERSION if poses is None else [VERSION, SPLIT_VERSION]
    settings = {"version": version, "counts": counts, "size": size, "seed": seed, "poses": poses}
    settings |= {"harder": harder} if harder else {}

    def fill(work: Path) -> None:
        sets = _sample_sets(counts, seed) if poses is None else _read_sets(counts, seed, poses)
        trained = np.concatenate([sets[name][0] for name in counts if name != "3dpw_test"])
        write_body(work, mean_rotation(trained))
        (work / "static_fits").mkdir()
        for name, (rotations, sequences) in sets.items():
            _write_set(work, name, rotations, sequences, size, seed, progress, harder)

    return generate(folder, settings, fill)


def mean_rotation(rotations: NDArray) -> NDArray:
    """(N, 24, 3, 3) -> (24, 3, 3): the rotation nearest to the mean matrix of each joint."""
    nearest: Any = roma.special_procrustes(torch.from_numpy(rotations.mean(0)))
    return nearest.numpy()


def _sample_sets(counts: dict[str, int], seed: int) -> dict[str, tuple[NDArray, NDArray]]:
    """Return {set: (rotations (N, 24, 3, 3), sequences (N,))} of sampled poses."""
    sets = {}
    for name, count in counts.items():
        rotations = sample_poses(count, np.random.default_rng((seed, SETS[name])))
        sets[name] = rotations, np.array([f"s{index // 4:04d}" for index in range(count)])
    return sets


def _read_sets(counts: dict[str, int], seed: int, poses: str) -> dict[str, tuple]:
    """Return the same from motion capture."""
    rng = np.random.default_rng((seed, 9))
    rotations, sequences = read_poses(poses, rng)
    sets = {}
    for name, rows in split(sequences, counts, rng).items():
        if len(rows) < counts[name]:
            raise ValueError(
                f"{poses}: expected {counts[name]} poses for {name}, but its sequences have "
                f"{len(rows)}. Set bodies.counts.{name} to at most {len(rows)}."
            )
        taken = rng.permutation(rows)[: counts[name]]
        sets[name] = rotations[taken], sequences[taken]
    return sets


def split(
    sequences: NDArray, counts: dict[str, int], rng: np.random.Generator
) -> dict[str, NDArray]:
    """Split motion capture by sequence: {set: rows (n,)} of sequences (N,).

    No sequence is in two sets, so the test set and the held-out sequences of one training set are
    not in another.
    """
    takes, sizes = np.unique(sequences, return_counts=True)
    owner, given = {}, dict.fromkeys(counts, 0)
    for index in rng.permutation(len(takes)):
        take = str(takes[index])
        tested = zlib.crc32(take.encode()) % 1000 < 1000 * TEST_SHARE
        sets = [name for name in counts if (name == "3dpw_test") == tested]
        if sets:  # the one that is furthest from its count
            name = min(sets, key=lambda one: given[one] / max(counts[one], 1))
            owner[take], given[name] = name, given[name] + int(sizes[index])
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
    harder: str | None,
) -> None:
    """Write the pictures and the npz of one set."""
    count, rng = len(rotations), np.random.default_rng((seed, 10 + SETS[name]))
    shape = np.clip(rng.normal(0, 1, (count, 10)), -2.5, 2.5).astype(np.float32)
    gender = rng.choice(["m", "f"], count) if name == "3dpw_test" else np.full(count, "")
    vertices, joints = _posed(work, rotations, shape, gender)
    middle = (vertices.max(1) + vertices.min(1))[:, :2] / 2  # (N, 2)
    extent = (vertices.max(1) - vertices.min(1))[:, :2].max(1)  # metres
    zoom = size * rng.uniform(0.62, 0.8, count) / extent  # pixels per metre
    center = size * (0.5 + rng.uniform(-0.05, 0.05, (count, 2)))
    names = [f"images/{name}/{one}_{index:05d}.jpg" for index, one in enumerate(sequences)]
    (work / "images" / name).mkdir(parents=True)
    arrays = body()
    covers = garments(arrays["template"], arrays["faces"], arrays["weights"])

    def to_pixels(points: NDArray, person: int) -> NDArray:
        flat = (points[..., :2] - middle[person]) * zoom[person] + center[person]
        return np.concatenate([flat, points[..., 2:] * zoom[person]], -1)

    for index in progress(range(count)):
        own = np.random.default_rng((seed, 20 + SETS[name], index))
        points = to_pixels(vertices[index], index)
        picture = render_person(points, arrays["faces"], covers, size, own)
        write_jpeg(work / names[index], degraded(picture, harder, own) if harder else picture)
    pixels = np.stack([to_pixels(joints[i], i) for i in range(count)])  # (N, 49, 3)
    pixels[..., 2] = 1  # the confidence
    pose = roma.rotmat_to_rotvec(torch.from_numpy(rotations)).reshape(count, 72).numpy()
    content = {
        "imgname": np.array(names),
        "center": center.astype(np.float32),
        "scale": (1.2 * extent * zoom / 200).astype(np.float32),
        "part": pixels[:, 25:].astype(np.float32),
        "openpose": (pixels[:, :25] * [1, 1, 0.9]).astype(np.float32),
    }
    if name == "coco_2014_train":
        fits = np.concatenate([pose, shape], 1) + rng.normal(0, 0.04, (count, 82))
        np.save(work / "static_fits" / "coco_fits.npy", fits.astype(np.float32))
    else:
        centred = joints[:, 25:] - joints[:, 25 + 14, None]  # about the pelvis
        known = np.concatenate([centred, np.ones((count, 24, 1))], -1).astype(np.float32)
        content |= {"pose": pose.astype(np.float32), "shape": shape}
        content |= {"has_smpl": np.ones(count, np.uint8), "S": known}
    if name == "3dpw_test":
        content["gender"] = gender
    np.savez(work / f"{name}.npz", **content)  # pyright: ignore[reportArgumentType]


def degraded(picture: NDArray, kind: str, rng: np.random.Generator) -> NDArray:
    """Return a harder picture (S, S, 3): blurred, with a grey box on the person, or of 24 px."""
    size = len(picture)
    if kind == "blur":
        return cv2.GaussianBlur(picture, (0, 0), size / 24)
    if kind == "pixels":
        small = cv2.resize(picture, (24, 24), interpolation=cv2.INTER_AREA)
        return cv2.resize(small, (size, size), interpolation=cv2.INTER_LINEAR)
    if kind == "occlusion":
        side = int(0.3 * size)
        x, y = rng.integers(int(0.15 * size), int(0.85 * size) - side, 2)
        boxed = picture.copy()
        boxed[y : y + side, x : x + side] = 128
        return boxed
    raise ValueError(f'Unknown difficulty {kind!r}; choose "blur", "occlusion" or "pixels".')


@torch.no_grad()
def _posed(
    work: Path, rotations: NDArray, shape: NDArray, gender: NDArray
) -> tuple[NDArray, NDArray]:
    """Return vertices (N, V, 3) and joints (N, 49, 3) of bodies of each person's gender."""
    names, people = {"m": "male", "f": "female", "": "neutral"}, len(shape)
    vertices = np.zeros((people, len(body()["template"]), 3), np.float32)
    joints = np.zeros((people, 49, 3), np.float32)
    for letter in np.unique(gender):
        smpl, rows = SMPL(work, names[str(letter)]), np.flatnonzero(gender == letter)
        for some in np.array_split(rows, -(-len(rows) // 64)):
            posed = smpl(torch.from_numpy(rotations[some]).float(), torch.from_numpy(shape[some]))
            vertices[some], joints[some] = (points.numpy() for points in posed)
    return vertices, joints
