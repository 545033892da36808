"""Divergence check: stop a run whose loss or parameters are not finite, and report where.

Reading a scalar back synchronises the GPU. So a GPU records on the device the first step whose loss
is not finite, and the check reads it when something is logged and before a checkpoint is written.
On a CPU every step is checked. No checkpoint is written after such a step.
"""

import math
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

LOWER = "Lower optim.optimizer.lr or optim.loss_lr, or raise the likelihood's floor."


class DivergenceCheck:
    """Check of a task that is trained with `steps` steps per epoch."""

    def __init__(self, fabric: Fabric, task: Any, steps: int):
        self.fabric, self.task, self.steps = fabric, task, steps
        self.first_bad = torch.full((), math.inf, device=fabric.device)  # step, over all ranks
        self.every_step = fabric.device.type == "cpu"
        self.last: Any = None  # step, loss, batch and predictions

    def record(self, step: int, loss: Tensor, batch: Any, pred: Tensor) -> Tensor | float:
        """Record a step; return this rank's share of the global batch. All ranks stop together."""
        self.last, n = (step, loss, batch, pred), len(pred)
        bad, share = ~loss.isfinite(), 1.0
        if self.fabric.world_size > 1:
            counts = torch.stack([torch.full_like(loss, n), bad.to(loss)])
            torch.distributed.all_reduce(counts)
            bad, share = counts[1] > 0, n / counts[0]
        self.first_bad = torch.minimum(self.first_bad, torch.where(bad, float(step), math.inf))
        if self.every_step:
            self.check_loss()
        return share

    def terms(self) -> dict[str, float]:
        """Return the terms of the last loss."""
        return self.task.terms(*self.last[2:])

    def check_loss(self) -> None:
        """Raise if a loss was not finite, with the step and each term. Synchronises the GPU."""
        bad = float(self.first_bad)
        if math.isinf(bad):
            return
        epoch, step = divmod(int(bad), self.steps)
        seen, loss, batch, _ = self.last
        terms = {"loss": float(loss), **self.terms()}
        listed = ", ".join(f"{key}={value:.6g}" for key, value in terms.items())
        later = "" if seen == bad else f" ({seen - int(bad)} steps later)"
        problem = f"the loss is not finite in epoch {epoch}, step {step}{later}: {listed}."
        finite = batch["input"].flatten(1).isfinite().all(1)
        if not finite.all():
            samples = batch["meta"]["index"][~finite].tolist()[:5]
            raise ValueError(
                f"{problem} The inputs of training samples {samples} are not finite; check those "
                "images, or the backbone of cached features."
            )
        raise FloatingPointError(f"{problem} {LOWER}")

    def check(self, epoch: int, step: int) -> None:
        """Raise if a loss or a parameter is not finite; called before anything is saved."""
        self.check_loss()
        likelihood = getattr(self.task.loss, "likelihood", None)
        # A sigma that is estimated from the first batches is NaN until then.
        waiting = likelihood is not None and likelihood.attempts > 0
        checked = self.task.model if waiting else self.task
        parameters = dict(checked.named_parameters())
        finite = torch.stack([p.detach().isfinite().all() for p in parameters.values()])
        if not finite.all():
            bad = [name for name, ok in zip(parameters, finite.tolist(), strict=True) if not ok]
            raise FloatingPointError(
                f"after epoch {epoch}, step {step} the loss is finite, but {len(bad)} parameters "
                f"are not: {', '.join(bad[:3])}. Nothing is saved. Lower optim.optimizer.lr or set "
                "trainer.clip."
            )
