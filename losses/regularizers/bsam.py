"""BSAM: balanced sharpness-aware minimisation, an optimiser that looks for flat minima.

    e = rho g(theta) / |g(theta)|,    theta <- optimiser step with g(theta + e)

where g is the gradient of a loss with weights that grow as a label gets rarer: the loss of rare
labels, too, should not rise near the minimum. A step costs two gradients.

Balanced Sharpness-Aware Minimization for Imbalanced Regression, ICCV 2025: weights 1 / sqrt(n_y),
rho 0.2. The sharpness-aware step is that of Foret et al., ICLR 2021.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class BSAM:
    """Wraps an optimiser; a learning rate schedule takes that optimiser itself.

    Examples:
        >>> weights = label_weights(labels, edges, scheme="sqrt_inverse")  # losses.reweight
        >>> error, adam = WeightedLoss("l1"), torch.optim.Adam(model.parameters())
        >>> bsam = BSAM(adam)
        >>> def closure():
        ...     bsam.zero_grad()
        ...     loss = error(model(x), y, weight)  # weight: those of the batch
        ...     loss.backward()
        ...     return loss
        >>> bsam.step(closure)
    """

    def __init__(self, optimizer: Optimizer, rho: float = 0.2):
        if not rho >= 0:
            raise ValueError(f"rho must be a number >= 0, got {rho}.")
        self.optimizer, self.rho = optimizer, rho

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor]) -> Tensor:
        """Return the loss before the step. closure: sets the gradients and returns the loss."""
        closure = torch.enable_grad()(closure)
        loss = closure()
        groups = self.optimizer.param_groups
        moved = [p for group in groups for p in group["params"] if p.grad is not None]
        if not moved:
            raise ValueError("BSAM found no gradients; the closure must call loss.backward().")
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in moved]))
        before = [p.clone() for p in moved]
        for p in moved:
            p.add_(p.grad * (self.rho / (norm + 1e-12)))
        try:
            closure()
        finally:
            for p, value in zip(moved, before, strict=True):
                p.copy_(value)
        self.optimizer.step()
        return loss

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state)
