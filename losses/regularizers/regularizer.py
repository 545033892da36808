"""Base of the regularisers: checks, precision, large batches and several ranks, in one place.

N: samples of all ranks; F: feature width; D: label dimensions.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..batches import check_samples, check_tensors, gather


class Regularizer(nn.Module):
    """A term r(features, pred, target) -> scalar. A subclass defines `term`.

    Half precision is computed in float32. With several ranks, each computes the term of the joined
    batch. Its gradient reaches the features of every rank, so that the average over the ranks, as
    in DDP, is the gradient of one process with the whole batch. In eval mode a rank uses its own
    samples only.

    Arguments:
        weight: factor of the term.
        limit: largest number of samples of a rank; from a larger batch (pixels) a random subset is
            used, because most methods compare all pairs.
        positive: settings of a subclass that must be positive numbers.
    """

    views = 1  # augmented views of each sample that a batch needs
    uses_features = True  # otherwise predictions only

    def __init__(self, weight: float = 1.0, limit: int = 1024, **positive: float):
        super().__init__()
        if not weight >= 0 or limit < 2:
            raise ValueError(f"Expected weight >= 0 and limit >= 2, got {weight} and {limit}.")
        for name, value in positive.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, got {value}.")
        self.weight, self.limit = weight, limit

    def forward(self, features: Tensor, pred: Tensor, target: Tensor) -> Tensor:
        """(N, F), (N, D), (N, D) -> scalar."""
        check_tensors(features, pred, target)
        shapes = [tuple(x.shape) for x in (features, pred, target)]
        if {len(shape) for shape in shapes} != {2} or len({n for n, _ in shapes}) > 1:
            expected = "features (N, F), pred (N, D) and target (N, D)"
            raise ValueError(f"Expected {expected}, got {', '.join(map(str, shapes))}.")
        with torch.autocast(features.device.type, enabled=False):
            features, pred = (
                x.to(torch.promote_types(x.dtype, torch.float32)) for x in (features, pred)
            )
            target, _ = check_samples(pred, target, None)
            if len(target) > self.limit:
                some = torch.randperm(len(target), device=target.device)[: self.limit]
                features, pred, target = features[some], pred[some], target[some]
            if self.training:
                features, pred, target = (gather(x) for x in (features, pred, target))
            return self.weight * self.term(features, pred, target)

    def term(self, features: Tensor, pred: Tensor, target: Tensor) -> Tensor:
        """Return the term of the joined batch, without its weight."""
        raise TypeError(f"{type(self).__name__} defines no term")

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict, prefix: str, *args: Any
    ) -> None:
        """Load buffers too whose size depends on the labels or features."""
        for name, buffer in self._buffers.items():
            if buffer is not None and prefix + name in state_dict:
                buffer.resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        plain = {k: v for k, v in vars(self).items() if isinstance(v, float | int | str)}
        return ", ".join(f"{k}={v}" for k, v in plain.items() if k != "training")


def directions(features: Tensor) -> Tensor:
    """(N, F) -> rows of length one. A row of zeros has no direction: it stays, without gradient."""
    zero = (features == 0).all(1, keepdim=True)
    return functional.normalize(features.masked_fill(zero, 1.0), dim=1).masked_fill(zero, 0.0)


def label_distance(target: Tensor) -> Tensor:
    """(N, D) -> (N, N), absolute differences or Euclidean norms."""
    return torch.cdist(target, target, compute_mode="donot_use_mm_for_euclid_dist")
