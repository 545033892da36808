"""Does a run still go well? Its losses and its parameters are finite, or it stops and says where.

What goes wrong is noted on the device and looked at where something is logged or saved, because a
look makes Python wait for a GPU; on a CPU each step is looked at. So no checkpoint is ever written
from a broken step.
"""

import math
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

LOWER = "Lower optim.optimizer.lr or optim.loss_lr, or raise the likelihood's floor."


class Health:
    """Of a task that is trained, with so many steps an epoch."""

    def __init__(self, fabric: Fabric, task: Any, steps: int):
        self.fabric, self.task, self.steps = fabric, task, steps
        self.broken = torch.full((), math.inf, device=fabric.device)  # the first such step
        self.looks = fabric.device.type == "cpu"  # in each step: there it makes nobody wait
        self.last: Any = None  # step, loss, batch and predictions

    def note(self, step: int, loss: Tensor, batch: Any, pred: Tensor) -> Tensor | float:
        """Keep on the device whether a rank's loss is not finite, so that all of them stop; tell
        the rows here over the rows of all ranks.
        """
        self.last, rows = (step, loss, batch, pred), len(pred)
        wrong, part = ~loss.isfinite(), 1.0
        if self.fabric.world_size > 1:
            counts = torch.stack([torch.full_like(loss, rows), wrong.to(loss)])
            torch.distributed.all_reduce(counts)
            wrong, part = counts[1] > 0, rows / counts[0]
        now = torch.where(wrong, float(step), math.inf)
        self.broken = torch.minimum(self.broken, now)
        if self.looks:
            self.check_loss()
        return part

    def terms(self) -> dict[str, float]:
        """What the last loss is made of."""
        return self.task.terms(*self.last[2:])

    def check(self, epoch: int, step: int) -> None:
        """Before anything is saved: is this a run that went well so far?"""
        self.check_loss()
        self.check_parameters(epoch, step)

    def check_loss(self) -> None:
        """Stop if the loss has not been finite, naming the step and each term. Waits for the
        device, so it is done where something is logged, and before a checkpoint is written.
        """
        broken = float(self.broken)
        if math.isinf(broken):
            return
        epoch, step = divmod(int(broken), self.steps)
        seen, loss, batch, _ = self.last
        terms = {"loss": float(loss), **self.terms()}
        listed = ", ".join(f"{key}={value:.6g}" for key, value in terms.items())
        if not torch.isfinite(batch["input"]).all():
            rows = torch.isfinite(batch["input"].flatten(1)).all(1).logical_not()
            raise ValueError(
                f"what the model is given is not finite in epoch {epoch}, step {step}, training "
                f"samples {batch['meta']['index'][rows].tolist()[:5]}: {listed}. Check those "
                "images, or with features=cached the backbone that made the features."
            )
        later = "" if seen == broken else f" ({seen - int(broken)} steps later)"
        raise FloatingPointError(
            f"the loss is not finite in epoch {epoch}, step {step}{later}: {listed}. {LOWER}"
        )

    def check_parameters(self, epoch: int, step: int) -> None:
        """Stop if a parameter is not finite, which the next loss would tell too late."""
        waiting = getattr(self.task.loss.likelihood, "looks", 0)  # a sigma not started is NaN
        part = self.task.model if waiting else self.task
        finite = torch.stack([p.detach().isfinite().all() for p in part.parameters()])
        if not finite.all():
            names = [name for name, _ in part.named_parameters()]
            wrong = [name for name, right in zip(names, finite.tolist(), strict=True) if not right]
            raise FloatingPointError(
                f"after epoch {epoch}, step {step} the loss is finite, but "
                f"{len(wrong)} parameters are not: {', '.join(wrong[:3])}. Nothing is saved. Lower "
                "optim.optimizer.lr or set trainer.clip."
            )
