"""The body obeys the laws of a rigid motion, and wrong files are refused by name."""

from pathlib import Path

import numpy as np
import pytest
import roma
import torch

from models.smpl import (
    SMPL,
    check_body,
    matrix_from_6d,
    project,
    read_body,
    read_mean,
    read_regressor,
)
from tests.recorded import recorded


@pytest.fixture(scope="module")
def body(bodies: Path) -> SMPL:
    return SMPL(bodies / "ihmr")


def random_body(count: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    turns = roma.rotvec_to_rotmat(0.4 * torch.randn(count, 24, 3, generator=generator))
    return turns, torch.randn(count, 10, generator=generator)


def test_the_rest_pose_is_the_template(body: SMPL, bodies: Path):
    still = torch.eye(3).expand(1, 24, 3, 3)
    arrays = read_body(bodies / "ihmr" / "SMPL_NEUTRAL.npz")
    vertices = body.vertices(still, torch.zeros(1, 10))[0]
    torch.testing.assert_close(vertices, torch.from_numpy(arrays["v_template"]))
    taller = body.vertices(still, torch.eye(1, 10))[0] - vertices
    torch.testing.assert_close(
        taller, torch.from_numpy(arrays["shapedirs"][..., 0]), atol=1e-6, rtol=0
    )


def test_turning_the_root_turns_everything_about_the_pelvis(body: SMPL):
    turns, shape = random_body()
    turn = roma.rotvec_to_rotmat(torch.tensor([0.3, -1.0, 0.5]))
    before, joints = body(turns, shape)
    turned = turns.clone()
    turned[:, 0] = turn @ turns[:, 0]
    after, joints_after = body(turned, shape)
    pelvis = joints[:, 8:9]  # OpenPose's middle of the hips is SMPL's root
    expected = (before - pelvis) @ turn.mT + pelvis
    torch.testing.assert_close(after, expected, atol=1e-5, rtol=0)  # float32 over a metre
    torch.testing.assert_close(joints_after[:, 8:9], pelvis)


def test_joints_only_gives_the_same_joints(body: SMPL, bodies: Path):
    turns, shape = random_body()
    few = SMPL(bodies / "ihmr", joints_only=True)
    assert few.body.v_template.shape[0] < body.body.v_template.shape[0] / 5
    torch.testing.assert_close(few(turns, shape)[1], body(turns, shape)[1], atol=1e-5, rtol=0)


def test_weak_perspective():
    """A point at depth zero lands at s (X + tx), up to the perspective of a far camera."""
    points = torch.tensor([[[0.3, -0.2, 0.0], [0.0, 0.5, 0.0]]])
    camera = torch.tensor([[0.9, 0.1, -0.05]])
    expected = 0.9 * (points[..., :2] + torch.tensor([0.1, -0.05]))
    torch.testing.assert_close(project(points, camera), expected)


def test_6d_rotations_are_those_of_the_public_implementations():
    known = {key: torch.from_numpy(array) for key, array in recorded("rotations").items()}
    six, matrix, vector, turned = (
        known[key] for key in ("rot6d", "rotmat", "axis_angle", "rodrigues")
    )
    # 2e-6: the recorded side is float32.
    torch.testing.assert_close(matrix_from_6d(six), matrix, atol=2e-6, rtol=0)
    torch.testing.assert_close(roma.rotvec_to_rotmat(vector), turned, atol=2e-6, rtol=0)
    turns = roma.rotvec_to_rotmat(torch.randn(50, 3, dtype=torch.float64))
    torch.testing.assert_close(matrix_from_6d(turns[..., :2].flatten(-2)), turns)


BAD = {
    "55 joints and 10475 vertices. This is SMPL-X": {
        "J_regressor": np.zeros((55, 10475)),
        "v_template": np.zeros((10475, 3)),
    },
    "missing.*weights": {"weights": None},
    "posedirs is": {"posedirs": np.zeros((2400, 3, 9))},
    "v_template holds NaN": {"v_template": np.full((2400, 3), np.nan)},
    "needs vertex_ids": {"vertex_ids": None},
    "expected 21 vertex_ids": {"vertex_ids": np.zeros(3)},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_bodies(message: str, bodies: Path):
    arrays = {**np.load(bodies / "ihmr" / "SMPL_MALE.npz"), **BAD[message]}
    with pytest.raises(ValueError, match=f"a.npz.*{message}"):
        check_body({key: array for key, array in arrays.items() if array is not None}, "a.npz")


def test_bad_files(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"none\.npz: no such file.*prepare_smpl"):
        read_body(tmp_path / "none.npz")
    np.save(tmp_path / "r.npy", np.zeros((9, 6890)))
    with pytest.raises(ValueError, match=r"r\.npy.*\(9, 6890\), expected numbers \(9, 2400\)"):
        read_regressor(tmp_path / "r.npy", 9, 2400)
    with pytest.raises(FileNotFoundError, match=r"q\.npy: no such joint regressor"):
        read_regressor(tmp_path / "q.npy", 9, 2400)
    np.savez(tmp_path / "m.npz", pose=np.zeros(72), shape=np.zeros(10), cam=np.zeros(3))
    with pytest.raises(ValueError, match=r"m\.npz.*check \['pose'\]"):
        read_mean(tmp_path / "m.npz")
