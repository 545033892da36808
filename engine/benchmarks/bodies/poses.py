"""Poses as labels: their coordinates, the loss, and likelihood and priors fitted to them.

The dataset's labels are 24 rotation matrices, (N, 216), NaN for people without a pose. The config
chooses the coordinates, one sigma or one per dimension, batch or mixture prior, and which part of
R^D Theorem 1 balances: all of it, the leading principal subspace, or each joint separately.

Shapes: N poses, D coordinates of a pose, R directions of a subspace.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import roma
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
from models.smpl import mean_rotations

Kind = Literal["rotmat", "rot6d", "axis_angle", "tangent"]
JOINTS = 24


class Coordinates(nn.Module):
    """Rotation matrices (N, 216) -> the coordinates (N, D) in which poses are compared.

    kind: rotmat (D = 216), rot6d (144), axis_angle (72), or tangent (72), the axis-angle of each
    rotation relative to the mean one, where it is smallest and least curved.
    """

    base: Tensor

    def __init__(self, kind: Kind, mean: str | Path):
        super().__init__()
        self.kind = kind
        self.register_buffer("base", mean_rotations(mean), persistent=False)  # (24, 3, 3)

    def forward(self, rows: Tensor) -> Tensor:
        matrices = rows.unflatten(-1, (JOINTS, 3, 3))
        if self.kind == "rotmat":
            return rows
        if self.kind == "rot6d":
            return matrices[..., :2].flatten(-3)
        if self.kind == "tangent":
            matrices = self.base.to(rows).mT @ matrices
        return roma.rotmat_to_rotvec(matrices).flatten(-2)

    def of(self, labels: NDArray) -> NDArray:
        """Coordinates of the labels that are not NaN: (N, 216) -> (n, D)."""
        poses = labels[np.isfinite(labels).all(1)]
        return self(torch.from_numpy(poses).float()).numpy()


class Stretch:
    """Stretch predicted poses about the mean pose M: (N, 229), see task.py, -> (N, 229).

        R' = M exp(s log(M^T R))        for each joint but the root, which is the camera's view

    Balancing by Theorem 1 stretches predictions away from the mean label. Where no s improves the
    balanced error, rare poses are wrong in their direction, not in their length, and no loss of
    this family can help on these features. With s = 1 poses stay, with 0 they are the mean pose.
    """

    def __init__(self, mean: str | Path, stretch: float):
        self.mean, self.stretch = mean_rotations(mean).double(), stretch  # (24, 3, 3), s

    def __call__(self, pred: NDArray) -> NDArray:
        rotations = torch.from_numpy(pred[:, :216]).double().unflatten(1, (JOINTS, 3, 3))
        away = roma.rotmat_to_rotvec(self.mean.mT @ rotations)  # (N, 24, 3)
        stretched = self.mean @ roma.rotvec_to_rotmat(self.stretch * away)
        stretched[:, 0] = rotations[:, 0]
        return np.concatenate([stretched.flatten(1).numpy(), pred[:, 216:]], 1, dtype=pred.dtype)


class PoseLoss(BalancedLoss):
    """Theorem 1 on poses: loss(pred (N, 216), target (N, 216)) -> scalar, the sum over D.

    With a `Subspace` prior, likelihood and prior apply to the R coordinates in the subspace, and
    the other directions keep the plain loss: predictions err most in the directions in which poses
    differ most, and one sigma for all directions would be too small there.
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
    """Gaussian with one sigma, or one per coordinate (of the subspace, if there is one).

    normalised: False for the released code's likelihood, which has no normaliser.
    """
    dims = subspace or coordinates.of(labels[:1] * 0).shape[-1]
    start: Any = torch.full((dims,), float(sigma)) if per_dimension else sigma
    return (Gaussian if normalised else GaussianKernel)(start, learn_sigma, floor)


def batch_prior(
    labels: NDArray, coordinates: Coordinates, queue: int, per_joint: bool, subspace: int | None
) -> Prior:
    """Prior of BMC: the labels of the batch."""
    return _balanced(lambda _: Batch(queue), coordinates.of(labels), per_joint, subspace)


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
    """Prior of GAI: a mixture fitted to the training poses.

    regularisation: added to every eigenvalue of every covariance, in units of the mean variance of
    a coordinate. Rotations lie near a low-dimensional surface, so most eigenvalues are near zero.
    max_samples: largest number of poses to fit to; 20,000 in 216 dimensions take about a minute.
    """
    options: Any = {"regularisation": regularisation, "max_samples": max_samples}
    fit = partial(GaussianMixture.fit, components=components, seed=seed, **options)
    return _balanced(fit, coordinates.of(labels), per_joint, subspace)


def _balanced(
    fit: Callable[[NDArray], Prior], rows: NDArray, per_joint: bool, subspace: int | None
) -> Prior:
    """Fit a prior to coordinates (N, D), to those of each joint, or to those of a subspace."""
    if per_joint:
        return Product([fit(block) for block in np.split(rows, JOINTS, axis=1)])
    if subspace is None:
        return fit(rows)
    centred = (rows - rows.mean(0)).astype(np.float64)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    basis = vectors[:, ::-1][:, :subspace].astype(np.float32).copy()  # largest variance first
    return Subspace(fit(rows @ basis), basis)
