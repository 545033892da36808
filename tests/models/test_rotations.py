"""6-D rotations against numbers recorded from the public implementations."""

from pathlib import Path

import numpy as np
import roma
import torch

from models.rotations import matrix_from_6d, six_from_matrix


def test_golden_and_there_and_back():
    with np.load(Path(__file__).parents[1] / "data" / "rotations.npz") as archive:
        six, matrix, vector, turned = (
            torch.from_numpy(archive[key]) for key in ("rot6d", "rotmat", "axis_angle", "rodrigues")
        )
    # 2e-6: the recorded side is float32.
    torch.testing.assert_close(matrix_from_6d(six), matrix, atol=2e-6, rtol=0)
    torch.testing.assert_close(roma.rotvec_to_rotmat(vector), turned, atol=2e-6, rtol=0)
    turns = roma.rotvec_to_rotmat(torch.randn(50, 3, dtype=torch.float64))
    torch.testing.assert_close(matrix_from_6d(six_from_matrix(turns)), turns)
