"""Errors of recovered meshes in millimetres, computed chunk by chunk to bound the memory.

    MPVPE     mean over vertices of |pred - true|, not aligned
    MPJPE     the same over 14 joints of the H36M regressor, relative to the pelvis
    PA-MPJPE  MPJPE after similarity alignment
    rarity    mean over vertices of |true - mean mesh|

True meshes use the body of the person's gender, or the neutral one where the gender is unknown; the
mean mesh is neutral.

Shapes: n people of a batch, V vertices, E = 3 errors.
"""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from datasets.ihmr import plausible_shape, split_target
from metrics import MeshMetrics, mean_distance, pa_mpjpe
from models.smpl import EVALUATED, SMPL, matrix_from_6d, read_mean, read_regressor

GENDERS = ("male", "female", "neutral")  # in the order of the targets' codes
NEUTRAL = 2


class BodyMetrics(MeshMetrics):
    """`mesh_report` of bodies: update(pred (n, 229), target (n, T)).

    Arguments:
        folder: of the SMPL files.
        mean: smpl_mean_params.npz.
        vertices: body of a predicted mesh for MPVPE: neutral, as SPIN's authors say, or that of
            the true gender (gt), as in the released code.
        chunk: bodies per chunk.
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
        self.convention, self.chunk = vertices, chunk
        self.bodies = nn.ModuleList([SMPL(folder, gender) for gender in GENDERS])
        pose, shape, _ = read_mean(mean)
        rotations = matrix_from_6d(pose.unflatten(-1, (24, 6)))
        with torch.no_grad():
            mean_mesh = self.mesh(rotations[None], shape[None], torch.tensor([NEUTRAL]))
        self.register_buffer("mean_mesh", mean_mesh, persistent=False)
        path = Path(folder) / "J_regressor_h36m.npy"
        table = torch.from_numpy(read_regressor(path, 17, mean_mesh.shape[1]))
        self.register_buffer("h36m", table, persistent=False)

    @torch.no_grad()
    def samples(self, pred: Tensor, target: Tensor) -> Tensor:  # pyright: ignore
        """(n, 1 + E): rarity and errors."""
        chunks = zip(pred.split(self.chunk), target.split(self.chunk), strict=True)
        samples = super().samples
        return torch.cat([samples(*self.errors(p.float(), t.float())) for p, t in chunks])

    @torch.no_grad()
    def errors(self, pred: Tensor, target: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """{"mpvpe", "mpjpe", "pa_mpjpe": (n,)} and the rarity (n,), in millimetres."""
        true = split_target(target)
        gender = true["gender"][:, 0].long()
        rotations, shape = pred[:, :216].unflatten(1, (24, 3, 3)), pred[:, 216:226]
        neutral = self.mesh(rotations, shape, torch.full_like(gender, NEUTRAL))
        truth = self.mesh(true["pose"].unflatten(1, (24, 3, 3)), plausible_shape(true), gender)
        gendered = self.convention == "gt"
        compared = self.mesh(rotations, shape, gender) if gendered else neutral
        joints, true_joints = self._joints(neutral), self._joints(truth)
        found = {
            "mpvpe": mean_distance(compared, truth),
            "mpjpe": mean_distance(joints, true_joints),
            "pa_mpjpe": pa_mpjpe(joints, true_joints),
        }
        rarity = mean_distance(truth, self.mean_mesh.expand(len(truth), -1, -1))
        return {name: 1000 * error for name, error in found.items()}, 1000 * rarity

    def mesh(self, rotations: Tensor, shape: Tensor, gender: Tensor) -> Tensor:
        """Vertices (n, V, 3) of the gendered bodies: (n, 24, 3, 3), (n, 10), (n,)."""
        vertices = shape.new_zeros(len(gender), len(self.bodies[0].body.v_template), 3)  # pyright: ignore
        for code in gender.unique().tolist():
            rows = gender == code
            vertices[rows] = self.bodies[int(code)].vertices(rotations[rows], shape[rows])  # pyright: ignore
        return vertices

    def _joints(self, vertices: Tensor) -> Tensor:
        """(n, V, 3) -> (n, 14, 3), relative to the pelvis."""
        joints = self.h36m @ vertices
        return (joints - joints[:, :1])[:, EVALUATED]
