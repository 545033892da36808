"""A pose as a label: in which numbers, with what likelihood, and what is known of training poses.

The dataset's labels are 24 rotation matrices, (N, 216), NaN for people without a pose. The choices
are the config's: coordinates, one sigma or one per dimension, batch or mixture, and how much of
Theorem 1's R^D is balanced (all of it, the leading principal subspace, each joint on its own).

N: poses; D: numbers of a pose; K: components.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from losses import (
    BalancedLoss,
    Batch,
    Flat,
    Gaussian,
    GaussianKernel,
    GaussianMixture,
    Product,
    Subspace,
)
from losses.priors import Prior
from models.rotations import axis_angle_from_matrix, matrix_from_6d, six_from_matrix
from models.smpl import read_mean

Kind = Literal["rotmat", "rot6d", "axis_angle", "tangent"]
JOINTS = 24


class Coordinates(nn.Module):
    """Rotation matrices (N, 216) -> the numbers (N, D) that a pose is compared in.

    kind: rotmat (D = 216), rot6d (144), axis_angle (72), or tangent (72), the axis-angle of each
    rotation as seen from the mean one, where it is smallest and least curved.
    """

    base: Tensor

    def __init__(self, kind: Kind, mean: str | Path):
        super().__init__()
        if kind not in Kind.__args__:
            raise ValueError(f"coordinates are one of {', '.join(Kind.__args__)}, got {kind!r}")
        self.kind = kind
        base = matrix_from_6d(read_mean(mean)[0].unflatten(-1, (JOINTS, 6)))
        self.register_buffer("base", base, persistent=False)  # (24, 3, 3)

    def forward(self, rows: Tensor) -> Tensor:
        matrices = rows.unflatten(-1, (JOINTS, 3, 3))
        if self.kind == "rotmat":
            return rows
        if self.kind == "rot6d":
            return six_from_matrix(matrices).flatten(-2)
        if self.kind == "tangent":
            matrices = self.base.to(rows).mT @ matrices
        return axis_angle_from_matrix(matrices).flatten(-2)

    def of(self, labels: NDArray) -> NDArray:
        """The labels that are poses, (N, 216) -> (n, D)."""
        poses = labels[np.isfinite(labels).all(1)]
        return self(torch.from_numpy(poses).float()).numpy()


class PoseLoss(BalancedLoss):
    """Theorem 1 on poses: loss(pred (N, 216), target (N, 216)) -> scalar, the sum over D.

    Where the prior is a `Subspace`, the likelihood is that of its directions alone, in their own
    numbers (N, R), and all others keep the plain loss: the directions in which poses differ most
    are also those in which predictions err most, and one sigma for all would be too small there.
    """

    basis: Tensor | None
    rest: Tensor | None

    def __init__(self, coordinates: Coordinates, prior: Prior, **options: Any):
        partial = isinstance(prior, Subspace)
        super().__init__(prior=prior.prior if partial else prior, **options)
        self.coordinates = coordinates
        basis = prior.basis if partial else None
        rest = None if basis is None else torch.linalg.qr(basis, "complete")[0][:, len(basis.mT) :]
        self.register_buffer("basis", basis, persistent=False)  # (D, R)
        self.register_buffer("rest", rest, persistent=False)  # (D, D - R)
        self.plain = BalancedLoss(type(self.likelihood)(1.0), Flat())  # pyright: ignore

    def forward(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        pred, target = self.coordinates(pred), self.coordinates(target)
        if self.basis is None or self.rest is None:
            return super().forward(pred, target, weight)
        leading = super().forward(pred @ self.basis, target @ self.basis, weight)
        return leading + self.plain(pred @ self.rest, target @ self.rest, weight)


def gaussian(
    labels: NDArray,
    coordinates: Coordinates,
    sigma: float,
    learn_sigma: bool,
    floor: float,
    per_dimension: bool,
    subspace: int | None,
    normalised: bool,
) -> Gaussian:
    """A Gaussian of one sigma, or of one per number of a pose, or per balanced direction; not
    `normalised`, it is the released code's.
    """
    dims = subspace or coordinates.of(labels[:1] * 0).shape[-1]
    start: Any = torch.full((dims,), float(sigma)) if per_dimension else sigma
    return (Gaussian if normalised else GaussianKernel)(start, learn_sigma, floor)


def batch_prior(
    labels: NDArray, coordinates: Coordinates, queue: int, per_joint: bool, subspace: int | None
) -> Prior:
    """BMC's prior: the labels of the batch."""
    if per_joint:
        return Product([Batch(queue) for _ in range(JOINTS)])
    if subspace is None:
        return Batch(queue)
    return Subspace(Batch(queue), principal(coordinates.of(labels), subspace))


def mixture_prior(
    labels: NDArray,
    coordinates: Coordinates,
    components: int,
    regularisation: float,
    max_samples: int,
    per_joint: bool,
    subspace: int | None,
    seed: int = 0,
) -> Prior:
    """GAI's prior: a mixture fitted to the training poses.

    regularisation: added to every eigenvalue of every covariance, in units of the mean variance of
    a number; a floor, as rotations fill a thin sheet and leave most eigenvalues near zero.
    max_samples: of more poses so many are drawn; 20,000 of 216 numbers fit in about a minute.
    """

    def fit(rows: NDArray) -> GaussianMixture:
        options: Any = {"regularisation": regularisation, "max_samples": max_samples}
        return GaussianMixture.fit(rows, components, seed, **options)

    rows = coordinates.of(labels)
    if per_joint:
        return Product([fit(block) for block in np.split(rows, JOINTS, axis=1)])
    if subspace is None:
        return fit(rows)
    basis = principal(rows, subspace)
    return Subspace(fit(rows @ basis), basis)


def principal(rows: NDArray, count: int) -> NDArray:
    """(N, D) -> (D, count): the directions of largest variance, orthonormal."""
    centred = (rows - rows.mean(0)).astype(np.float64)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return vectors[:, ::-1][:, :count].astype(np.float32).copy()
