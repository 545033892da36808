"""The baselines: plain errors, times a weight per sample that grows as its label gets rarer.

    loss = mean_i w_i error(pred_i, target_i)

The weights come from `losses.density.label_weights` (inverse, sqrt-inverse, either with LDS).

N: rows; D: label dimensions.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from .batches import check_rows, full_precision
from .likelihoods import Likelihood

Error = Literal["mse", "l1", "huber", "focal_mse", "focal_l1"]


class WeightedLoss(nn.Module):
    """loss(pred (N, D), target (N, D), weight (N,) or None) -> scalar.

    error: mse, l1, huber (quadratic below `delta`), or the focal forms, which scale each error by
    (2 sigmoid(beta |r|) - 1)^gamma, so that well-fitted samples count less (Yang et al., ICML
    2021). normalise: divide the weights by their sum in the batch (the paper's synthetic
    baseline), instead of trusting that their mean over the training set is one (DIR's
    convention). Computed in float32 or better whatever the autocast state.
    """

    def __init__(
        self,
        error: Error = "mse",
        normalise: bool = False,
        delta: float = 1.0,
        beta: float = 0.2,
        gamma: float = 1.0,
    ):
        super().__init__()
        if error not in Error.__args__:
            raise ValueError(f"error is one of {', '.join(Error.__args__)}, got {error!r}")
        self.error, self.normalise = error, normalise
        self.delta, self.beta, self.gamma = delta, beta, gamma
        self.likelihood = Likelihood()  # one output per label dimension, decoded as it is

    @full_precision
    def forward(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        pred, target = self.likelihood.as_rows(pred, target)
        target, weight = check_rows(pred, target, weight)
        rows = self.errors(pred, target)
        if weight is None:
            return rows.mean()
        return weight @ rows / (weight.sum() if self.normalise else len(rows))

    def errors(self, pred: Tensor, target: Tensor) -> Tensor:
        """(N, D), (N, D) -> (N,), summed over the dimensions."""
        size = (pred - target).abs()
        if self.error == "huber":
            zero = torch.zeros_like(size)
            return functional.huber_loss(size, zero, reduction="none", delta=self.delta).sum(-1)
        error = size if self.error.endswith("l1") else size.square()
        if self.error.startswith("focal"):
            error = error * (2 * torch.sigmoid(self.beta * size) - 1) ** self.gamma
        return error.sum(-1)
