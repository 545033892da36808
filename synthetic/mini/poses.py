"""Sample poses for the mini IHMR: mostly standing and walking, rarely reaching, crouching or lying.

Axis-angle in SMPL's order, from a T-pose with the left arm along +x, facing +z, y up. A leg swings
forward by a negative rotation about x, a knee bends by a positive one, and the left arm hangs down
at -75 degrees about z.

N: poses.
"""

from pathlib import Path

import numpy as np
import roma
import torch
from numpy.typing import NDArray

from datasets.io.arrays import read_npz

KINDS = {"standing": 0.48, "walking": 0.36, "reaching": 0.07, "crouching": 0.05}
KINDS |= {"lying": 0.02, "kicking": 0.02}
LEFT_HIP, RIGHT_HIP, LEFT_KNEE, RIGHT_KNEE = 1, 2, 4, 5
LEFT_ARM, RIGHT_ARM, LEFT_ELBOW, RIGHT_ELBOW = 16, 17, 18, 19
SPINE = (3, 6, 9)
LOOSE = np.array([2, 4, 4, 4, 4, 4, 4, 6, 6, 4, 3, 3, 6, 3, 3, 6, 9, 9, 8, 8, 8, 8, 3, 3])  # deg


def sample_pose(rng: np.random.Generator) -> NDArray:
    """Sample one pose (24, 3), in radians, of a random kind, facing +z."""
    kind = rng.choice(list(KINDS), p=list(KINDS.values()))
    pose = rng.normal(0, LOOSE[:, None], (24, 3))  # degrees
    pose[LEFT_ARM, 2] -= 72
    pose[RIGHT_ARM, 2] += 72
    pose[LEFT_ELBOW, 1] -= abs(rng.normal(12, 12))
    pose[RIGHT_ELBOW, 1] += abs(rng.normal(12, 12))
    side = rng.choice([-1, 1])
    if kind == "walking":
        _walk(pose, side * rng.uniform(0.2, 1), rng)
    elif kind == "reaching":
        _reach(pose, rng)
    elif kind == "crouching":
        depth = rng.uniform(0.5, 1.1)
        for hip, knee in ((LEFT_HIP, LEFT_KNEE), (RIGHT_HIP, RIGHT_KNEE)):
            pose[hip, 0] -= depth * rng.uniform(75, 105)
            pose[knee, 0] += depth * rng.uniform(90, 120)
        pose[0, 0] += 25 * depth
        pose[SPINE, 0] += 10 * depth
        pose[LEFT_ARM, 1] -= depth * rng.uniform(10, 60)
        pose[RIGHT_ARM, 1] += depth * rng.uniform(10, 60)
    elif kind == "lying":
        pose[0, 2] += side * rng.normal(88, 8)
        _walk(pose, side * rng.uniform(0, 1.2), rng)
    elif kind == "kicking":
        leg = LEFT_HIP if side > 0 else RIGHT_HIP
        pose[leg, 0] -= rng.uniform(50, 95)
        pose[leg + 3, 0] += rng.uniform(0, 40)
        _reach(pose, rng, high=90)
    return np.radians(pose)


def _walk(pose: NDArray, stride: float, rng: np.random.Generator) -> None:
    pose[LEFT_HIP, 0] -= 28 * stride
    pose[RIGHT_HIP, 0] += 28 * stride
    back = RIGHT_KNEE if stride > 0 else LEFT_KNEE
    pose[back, 0] += abs(stride) * rng.uniform(10, 50)
    pose[LEFT_ARM, 1] += 25 * stride
    pose[RIGHT_ARM, 1] += 25 * stride


def _reach(pose: NDArray, rng: np.random.Generator, high: float = 150) -> None:
    """Raise one arm or both."""
    for joint, sign in ((LEFT_ARM, 1), (RIGHT_ARM, -1)):
        if rng.random() < 0.7:
            pose[joint, 2] += sign * rng.uniform(50, high)
            pose[joint, 1] -= sign * rng.uniform(0, 50)


def sample_poses(count: int, rng: np.random.Generator) -> NDArray:
    """Sample rotations (N, 24, 3, 3) in the camera's frame."""
    vectors = torch.from_numpy(np.stack([sample_pose(rng) for _ in range(count)]))
    return face_camera(roma.rotvec_to_rotmat(vectors).numpy(), rng)


def face_camera(rotations: NDArray, rng: np.random.Generator) -> NDArray:
    """Turn bodies about the vertical, most of them towards the camera.

    (N, 24, 3, 3) with y up -> the same in the camera's frame, with y down and z away from it.
    """
    forward = rotations[:, 0, :, 2]
    heading = np.arctan2(forward[:, 0], forward[:, 2])
    wide = rng.random(len(rotations)) < 0.15
    yaw = np.radians(rng.normal(0, np.where(wide, 70, 22))) - heading
    turn = roma.rotvec_to_rotmat(torch.from_numpy(yaw[:, None] * np.array([0.0, 1, 0]))).numpy()
    placed = rotations.copy()
    placed[:, 0] = np.diag([1.0, -1, -1]) @ turn @ rotations[:, 0]
    return placed


def read_poses(path: str, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Read rotations (N, 24, 3, 3) in the camera's frame, and the sequence (N,) of each.

    The file is an npz with pose (N, 72), axis-angle in SMPL's order, y up, and sequence (N,).
    """
    file = read_npz(Path(path))
    if "pose" not in file or file["pose"].ndim != 2 or file["pose"].shape[1] != 72:
        raise ValueError(f"{path}: expected an npz with pose (N, 72) and sequence (N,).")
    vectors = torch.from_numpy(file["pose"].astype(np.float64)).reshape(-1, 24, 3)
    return face_camera(roma.rotvec_to_rotmat(vectors).numpy(), rng), file["sequence"].astype(str)
