"""6-D and axis-angle rotations against numbers recorded from the public implementations."""

from pathlib import Path

import numpy as np
import torch

from models.rotations import (
    axis_angle_from_matrix,
    geodesic,
    matrix_from_6d,
    matrix_from_axis_angle,
    six_from_matrix,
)

with np.load(Path(__file__).parents[1] / "data" / "rotations.npz") as archive:
    PUBLIC = {key: torch.from_numpy(value) for key, value in archive.items()}


# 2e-6: the recorded side is float32.
def test_golden():
    torch.testing.assert_close(matrix_from_6d(PUBLIC["rot6d"]), PUBLIC["rotmat"], atol=2e-6, rtol=0)
    made = matrix_from_axis_angle(PUBLIC["axis_angle"])
    torch.testing.assert_close(made, PUBLIC["rodrigues"], atol=2e-6, rtol=0)


def test_there_and_back():
    turns = matrix_from_axis_angle(torch.randn(50, 3, dtype=torch.float64))
    torch.testing.assert_close(matrix_from_6d(six_from_matrix(turns)), turns)
    torch.testing.assert_close(matrix_from_axis_angle(axis_angle_from_matrix(turns)), turns)


def test_geodesic_is_the_angle():
    axis = torch.tensor([[0.6, 0.0, 0.8]], dtype=torch.float64)
    angle = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)
    turns = matrix_from_axis_angle(axis * angle[:, None])
    torch.testing.assert_close(geodesic(turns, torch.eye(3, dtype=torch.float64)), angle)
