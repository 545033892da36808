"""Human mesh recovery as a task: SPIN's loss with Balanced MSE as its pose term.

    loss = w_2d |K - K*|^2 + w_3d |J - J*|^2 + w_pose L(theta) / D + w_shape |beta - beta*|^2
           + w_cam exp(-10 s)^2

L is a `PoseLoss`: SPIN-RT with a flat prior, BMC with batch labels, GAI with a mixture. Keypoints
are weighted by their confidence, and OpenPose's have no weight. Pose and shape are trained where
the truth is known or a static fit reprojects well. The terms of keypoints and joints, and the error
of a fit, are in terms.py.

Shapes: N people; targets are (N, T), see datasets.ihmr; predictions are (N, 229): 24 rotation
matrices, 10 shape coefficients, 3 camera parameters.
"""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datasets.ihmr import plausible_shape, split_target
from engine.benchmarks.bodies.poses import PoseLoss
from engine.benchmarks.bodies.terms import Spin
from engine.training.task import Regression, indices_where
from losses import Flat
from models.smpl import SMPL, matrix_from_6d, project

PREDICTED = (216, 10, 3)
PERSON = 3000.0  # mm, taller than any person


class MeshRecovery(Regression):
    """A MeshRegressor and its loss.

    Arguments:
        model: a MeshRegressor.
        loss: a PoseLoss.
        body: the neutral SMPL, joints only.
        terms: Spin or Released of terms.py.
        scale: {"keypoints", "joints", "pose", "shape", "camera"}: the weights of the terms.
        overshoot: stop when the mean squared distance of the predicted poses to the mean pose
            exceeds that of the labels by this factor.
        warmup: epochs without that check, for a network that starts from another task's weights.
        collapse: stop when sigma falls below this.
        cached: the inputs are features, so only the head runs.
    """

    epochs: Tensor
    spread: Tensor

    def __init__(
        self,
        model: Any,
        loss: PoseLoss,
        body: SMPL,
        terms: Spin,
        scale: dict[str, float],
        overshoot: float,
        warmup: int,
        collapse: float,
        cached: bool = False,
    ):
        super().__init__(model, loss, cached=cached)
        self.body, self.counting, self.scale = body, terms, dict(scale)
        self.overshoot, self.warmup, self.collapse = overshoot, warmup, collapse
        self.register_buffer("epochs", torch.zeros((), dtype=torch.long))  # finished
        self.register_buffer("spread", torch.zeros(2), persistent=False)  # of pred, of target
        self.host_body = (copy.deepcopy(body),)  # in a tuple, so it is not moved to the device

    def select(self, batch: dict) -> dict:
        """Add the indices of people with a pose and shape to train on, and of those with joints."""
        true = split_target(batch["target"].cpu())
        joints = indices_where(true["has_joints"] > 0)
        return batch | {"known": indices_where(self.known(true)), "with_joints": joints}

    def forward(self, batch: dict) -> tuple[Tensor, Tensor]:
        """Return the loss of a training batch, and the predictions (N, 229)."""
        pred = self.predict(batch)
        with torch.autocast(pred.device.type, enabled=False):  # the body model needs float32
            terms = self.unweighted(pred, batch, watch=True)
        return sum((self.scale[name] * term for name, term in terms.items()), torch.zeros(())), pred

    def predict(self, batch: dict) -> Tensor:
        """(N, 229)."""
        made = (self.model.head if self.cached else self.model)(batch["input"])
        return torch.cat([part.flatten(1).float() for part in made], 1)

    def unweighted(self, pred: Tensor, batch: dict, watch: bool = False) -> dict[str, Tensor]:
        """Terms before their weights: (N, 229) -> {name: scalar}.

        watch: accumulate the squared distances of the poses to the mean pose.
        """
        pose, shape, camera = pred.split(PREDICTED, 1)
        batch = batch if "known" in batch else self.select(batch)
        true, known = split_target(batch["target"]), batch["known"]
        joints = self.body(pose.unflatten(1, (24, 3, 3)), shape)[1]  # (N, 49, 3)
        if watch:
            mean = matrix_from_6d(self.model.init_pose.unflatten(1, (24, 6))).flatten(1)
            poses = pose.detach()[known], true["pose"][known]
            self.spread += torch.stack([(each - mean).square().sum() for each in poses])
        some, wrong = len(known) > 0, shape - plausible_shape(true)
        rows = batch["with_joints"]
        return {
            "keypoints": self.counting.keypoints(project(joints, camera), true["keypoints"]),
            "joints": self.counting.joints(joints[rows], true["joints"][rows]),
            "pose": self.pose(pose[known], true["pose"][known]) if some else pose.sum() * 0,
            "shape": wrong[known].square().mean() if some else shape.sum() * 0,
            "camera": torch.exp(-10 * camera[:, 0]).square().mean(),
        }

    def pose(self, pred: Tensor, target: Tensor) -> Tensor:
        """Balanced term divided by the number of coordinates, as MSE is a mean."""
        return self.loss(pred, target) / self.loss.coordinates(target[:1]).shape[-1]

    @torch.no_grad()
    def known(self, true: dict[str, Tensor]) -> Tensor:
        """(N,) on the host: people with a true pose and shape, or a fit that reprojects well."""
        known = true["has_smpl"][:, 0] > 0
        fitted = ~known & (true["has_fit"][:, 0] > 0)
        if fitted.any():
            rotations = true["pose"][fitted].unflatten(1, (24, 3, 3))
            joints = self.host_body[0](rotations, true["shape"][fitted])[1]
            error = self.counting.fit_error(joints, true["keypoints"][fitted])
            known[fitted] = error < self.counting.good_fit
        return known

    def end_epoch(self) -> None:
        """Raise an error if the run diverges."""
        self.epochs += 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(self.spread)
        ratio = float(self.spread[0] / self.spread[1].clamp(min=1e-9))
        self.spread.zero_()
        advice = f"Lower loss.strength, which is {self.loss.strength:g}, or balance a subspace."
        if isinstance(self.loss.prior, Flat):
            advice = "Lower optim.optimizer.lr, set trainer.clip, or raise task.warmup."
        if ratio > self.overshoot and self.epochs > self.warmup:
            raise FloatingPointError(
                f"the predicted poses overshoot: their squared distance to the mean pose is "
                f"{ratio:.2f} times that of the labels, more than {self.overshoot}. {advice}"
            )
        lowest = min(self.scales().values(), default=1.0)
        if lowest < self.collapse:
            raise FloatingPointError(
                f"sigma collapsed to {lowest:.3g}, below {self.collapse}: with distant labels the "
                f"balancing term rewards overshooting. {advice}"
            )

    @torch.no_grad()
    def terms(self, batch: dict, pred: Tensor) -> dict[str, float]:
        """Weighted terms, for the log and for the error message of a non-finite loss."""
        training = self.loss.training
        self.loss.eval()  # logging must not push labels into a queue
        terms = self.unweighted(pred.detach().float(), batch)
        self.loss.train(training)
        weighted = {name: self.scale[name] * float(term) for name, term in terms.items()}
        return weighted | self.scales()

    def implausible(self, report: Mapping[str, float], labels: Any) -> str | None:
        """Return a message if the joint error exceeds the height of a person."""
        error = report.get("test/mpjpe")
        if error is None or error <= PERSON:
            return None
        return f"the mean joint error is {error:.4g} mm"

    @torch.no_grad()
    def show(self, writer: Any, test: Mapping[str, NDArray], step: int) -> None:
        """Log some true and predicted meshes to TensorBoard's mesh plugin."""
        some = np.linspace(0, len(test["pred"]) - 1, min(4, len(test["pred"]))).astype(int)
        body = SMPL(self.body.folder)
        triangles = torch.from_numpy(body.triangles).expand(len(some), -1, -1)
        for name in ("target", "pred"):
            rows = torch.from_numpy(test[name][some])
            vertices = body.vertices(rows[:, :216].unflatten(1, (24, 3, 3)), rows[:, 216:226])
            upright = vertices * torch.tensor([1.0, -1, -1])  # y points up
            writer.add_mesh(name, upright, faces=triangles, global_step=step)

    def constant_keys(self) -> set[str]:
        """Keys of the state dict that training cannot change: the body's, and frozen ones."""
        return super().constant_keys() | {f"body.{key}" for key in self.body.state_dict()}
