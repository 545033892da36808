"""A scale for every sample: the model predicts the uncertainty of each label.

    pred (N, 2 D) = (mean, r)        scale = s * span^tanh(r)

Theorem 1 applies unchanged: the evidence of a sample uses its scale. The scale is bounded on both
sides, because mean and scale can diverge together: with a very large scale the evidence does not
depend on the mean.

N: samples; D: label dimensions; K: atoms, components.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .likelihoods import Gaussian, Likelihood, Location

if TYPE_CHECKING:
    from .mixture import GaussianMixture


class Heteroscedastic(Likelihood):
    """`shape` (Gaussian, Laplace or Huber) with one scale per sample, between s / span and s * span
    for the shape's fixed scale s.

    Examples:
        >>> loss = BalancedLoss(Heteroscedastic(Gaussian(sigma=8.0)), prior)
    """

    def __init__(self, shape: Location, span: float = 4.0):
        super().__init__()
        if not isinstance(shape, Location) or shape.learned or shape.attempts:
            raise ValueError(
                f"shape must be a Gaussian, Laplace or Huber with a fixed scale, got {shape}."
            )
        if not (math.isfinite(span) and span >= 1):
            raise ValueError(f"span must be a factor of at least 1, got {span}.")
        self.shape, self.span = shape, float(span)

    def width(self, dims: int) -> int:
        return 2 * dims

    @property
    def unit(self) -> Tensor | float:
        return self.shape.unit

    def mean_and_scale(self, pred: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 2 D) -> (N, D), (N, D)."""
        mean, r = pred.chunk(2, -1)
        return mean, self.shape.scale_for(mean) * torch.exp(math.log(self.span) * torch.tanh(r))

    def log_norm(self, pred: Tensor) -> Tensor:
        """At the shape's scale; a sample's scale is part of its density."""
        return self.shape.log_norm(self.decode(pred))

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        mean, scale = self.mean_and_scale(pred)
        energy = self.shape.energy((target - mean) / scale)
        return -(energy + scale.log() + self.shape.log_z).sum(-1)

    def decode(self, pred: Tensor) -> Tensor:
        return pred.chunk(2, -1)[0]

    def held(self, pred: Tensor, low: Tensor, high: Tensor) -> Tensor:
        mean, r = pred.chunk(2, -1)
        return torch.cat([self.shape.held(mean, low, high), r], -1)

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        mean, scale = self.mean_and_scale(self.held(pred, atoms.amin(0), atoms.amax(0)))
        r = (mean[:, None] - atoms) / scale[:, None]  # (N, K, D)
        evidence = torch.logsumexp(log_weights - self.shape.energy(r).sum(-1), -1)
        return (evidence - (scale.log() + self.shape.log_z).sum(-1)).to(pred.dtype)

    def log_evidence_mixture(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        """log sum_k w_k N(mean; mu_k, Sigma_k + scale^2), in one dimension."""
        mean, scale = self.mean_and_scale(pred)
        if type(self.shape) is not Gaussian or mean.shape[-1] > 1:
            raise ValueError(
                "GaussianMixture has a closed form for one scale per sample only with a Gaussian "
                f"in one dimension, got {type(self.shape).__name__} in {mean.shape[-1]}; use Bins "
                "or Batch()."
            )
        return mixture.log_density(mean, scale)
