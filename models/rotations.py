"""Conversions between rotation matrices, axis-angle vectors and 6-D rotations, through roma.

A 6-D rotation is the first two columns of a matrix, (..., 3, 2), flattened row by row.
"""

import roma
import torch
from torch import Tensor


def matrix_from_6d(six: Tensor) -> Tensor:
    """(..., 6) -> (..., 3, 3): Gram-Schmidt on two columns, the third is their cross product."""
    return roma.special_gramschmidt(six.unflatten(-1, (3, 2)))


def six_from_matrix(matrix: Tensor) -> Tensor:
    """(..., 3, 3) -> (..., 6)."""
    return matrix[..., :2].flatten(-2)


def matrix_from_axis_angle(vector: Tensor) -> Tensor:
    """(..., 3) -> (..., 3, 3)."""
    return roma.rotvec_to_rotmat(vector)


def axis_angle_from_matrix(matrix: Tensor) -> Tensor:
    """(..., 3, 3) -> (..., 3) of length up to pi."""
    return roma.rotmat_to_rotvec(matrix)


def geodesic(a: Tensor, b: Tensor) -> Tensor:
    """Return angles between rotations in radians: (..., 3, 3), (..., 3, 3) -> (...)."""
    return roma.rotmat_geodesic_distance(*torch.broadcast_tensors(a, b))
