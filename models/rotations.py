"""Conversions between rotation matrices and 6-D rotations, through roma.

A 6-D rotation is the first two columns of a matrix, (..., 3, 2), flattened row by row.
"""

import roma
from torch import Tensor


def matrix_from_6d(six: Tensor) -> Tensor:
    """(..., 6) -> (..., 3, 3): Gram-Schmidt on two columns, the third is their cross product."""
    return roma.special_gramschmidt(six.unflatten(-1, (3, 2)))


def six_from_matrix(matrix: Tensor) -> Tensor:
    """(..., 3, 3) -> (..., 6)."""
    return matrix[..., :2].flatten(-2)
