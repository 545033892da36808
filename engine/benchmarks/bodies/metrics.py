"""Errors of recovered meshes in millimetres, evaluated chunk by chunk: memory is that of a chunk.

    MPVPE     mean over vertices of |pred - true|, nothing aligned
    MPJPE     the same over 14 joints of the H36M regressor, about the pelvis; PA-MPJPE aligned
    rarity    mean over vertices of |true - mean mesh|

True meshes are men's or women's (neutral where the gender is not known); the mean mesh is neutral.
"""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from datasets.ihmr import plausible_shape, split_target
from metrics import MeshMetrics, mean_distance, pa_mpjpe
from models.rotations import matrix_from_6d
from models.smpl import EVALUATED, SMPL, chunks, read_mean, read_regressor

GENDERS = ("male", "female", "neutral")  # in the order of the targets' codes
NEUTRAL = 2


class BodyMetrics(MeshMetrics):
    """`mesh_report` of bodies: update(pred (n, 229), target (n, T)).

    Arguments:
        folder: of the SMPL files.
        mean: smpl_mean_params.npz.
        vertices: whose mesh a prediction is for MPVPE: neutral, as SPIN's authors say, or that of
            the true gender (gt), as in the released code.
        chunk: bodies at a time.
    """

    h36m: Tensor
    mean_mesh: Tensor

    def __init__(
        self,
        folder: str | Path,
        mean: str | Path,
        vertices: Literal["neutral", "gt"],
        chunk: int,
        train_labels: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if vertices not in ("neutral", "gt"):
            raise ValueError(f"vertices is neutral or gt, got {vertices!r}")
        self.convention, self.chunk = vertices, chunk
        self.bodies = nn.ModuleList([SMPL(folder, gender) for gender in GENDERS])
        pose, shape, _ = read_mean(mean)
        rotations = matrix_from_6d(pose.unflatten(-1, (24, 6)))
        with torch.no_grad():
            mean_mesh = self._mesh(rotations[None], shape[None], torch.tensor([NEUTRAL]))
        self.register_buffer("mean_mesh", mean_mesh, persistent=False)
        path = Path(folder) / "J_regressor_h36m.npy"
        table = torch.from_numpy(read_regressor(path, 17, mean_mesh.shape[1]))
        self.register_buffer("h36m", table, persistent=False)

    @torch.no_grad()
    def update(self, pred: Tensor, target: Tensor) -> None:  # pyright: ignore
        """Add a batch."""
        for part in chunks(len(pred), self.chunk):
            super().update(*self.errors(pred[part].float(), target[part].float()))

    @torch.no_grad()
    def samples(self, pred: Tensor, target: Tensor) -> Tensor:  # pyright: ignore
        """(n, 1 + E) rarity and errors."""
        parts = chunks(len(pred), self.chunk)
        each = [self.errors(pred[part].float(), target[part].float()) for part in parts]
        return torch.cat([super(BodyMetrics, self).samples(*one) for one in each])

    @torch.no_grad()
    def errors(self, pred: Tensor, target: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """{"mpvpe", "mpjpe", "pa_mpjpe": (n,)} and the rarity (n,), in millimetres."""
        true, gender = split_target(target), split_target(target)["gender"][:, 0].long()
        rotations, shape = pred[:, :216].unflatten(1, (24, 3, 3)), pred[:, 216:226]
        neutral = self._mesh(rotations, shape, torch.full_like(gender, NEUTRAL))
        truth = self._mesh(true["pose"].unflatten(1, (24, 3, 3)), plausible_shape(true), gender)
        own = self.convention == "gt"
        compared = self._mesh(rotations, shape, gender) if own else neutral
        joints, true_joints = self._joints(neutral), self._joints(truth)
        found = {
            "mpvpe": mean_distance(compared, truth),
            "mpjpe": mean_distance(joints, true_joints),
            "pa_mpjpe": pa_mpjpe(joints, true_joints),
        }
        rarity = mean_distance(truth, self.mean_mesh.expand(len(truth), -1, -1))
        return {name: 1000 * error for name, error in found.items()}, 1000 * rarity

    def _mesh(self, rotations: Tensor, shape: Tensor, gender: Tensor) -> Tensor:
        """(n, 24, 3, 3), (n, 10), (n,) -> (n, V, 3), each of its gender."""
        vertices = shape.new_zeros(len(gender), len(self.bodies[0].body.v_template), 3)  # pyright: ignore
        for code in gender.unique().tolist():
            rows = gender == code
            vertices[rows] = self.bodies[int(code)].vertices(rotations[rows], shape[rows])  # pyright: ignore
        return vertices

    def _joints(self, vertices: Tensor) -> Tensor:
        """(n, V, 3) -> (n, 14, 3), about the pelvis."""
        joints = self.h36m @ vertices
        return (joints - joints[:, :1])[:, EVALUATED]
