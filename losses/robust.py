"""Likelihoods with heavier tails than the Gaussian: Theorem 1 for the L1 and the Huber loss (the
paper's future work).

Their energy grows linearly. Beyond the outermost labels, the energies of all labels have the same
slope, so log p(y | pred) and the evidence cancel: Theorem 1's gradient is zero there, and a model
that starts or steps outside of the labels stays there. So the evidence is held constant beyond the
outermost labels, log_evidence(pred.clamp(low, high)) in each dimension: the gradient is the plain
loss's there, which leads back. Within the labels Theorem 1 is exact. (A Gaussian needs no such
rule: its gradient there is that of the squared distance to the outermost label.)

N: samples; D: label dimensions; K: atoms, components.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .batches import double
from .likelihoods import Location

if TYPE_CHECKING:
    from .mixture import GaussianMixture


WIDTH = 3.0  # deviations of a component beyond its mean that count as labels


class Robust(Location):
    """Base class: linear tails."""

    def held(self, pred: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return pred.clamp(low, high)


class Laplace(Robust):
    """Independent Laplace noise of scale b. With a flat prior it is L1, summed over dimensions."""

    log_z = math.log(2)

    def __init__(self, scale: Any = 1.0, learn_scale: bool = False, floor: float = 1e-3):
        super().__init__(scale, learn_scale, floor)

    @property
    def unit(self) -> Tensor:
        return self.value.detach().mean()

    def energy(self, r: Tensor) -> Tensor:
        return r.abs()

    def spread(self, residual: Tensor) -> Tensor:
        return residual.abs().nanmean(0)

    def log_evidence_mixture(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        """The normal-Laplace density. With d = pred - mu, s^2 = Sigma, z = (s/b -+ d/s) / sqrt(2):

        integral = [ e^(-d^2/2s^2) erfcx(z_-) + e^(-d^2/2s^2) erfcx(z_+) ] / 4b
        """
        if pred.shape[-1] > 1:
            raise ValueError(
                "GaussianMixture has a closed form for a Laplace likelihood only in one dimension, "
                f"got {pred.shape[-1]}; use Batch()."
            )
        weights, mu, s = (double(t) for t in (mixture.weights, mixture.means, mixture.covariances))
        mu, s, b = mu[:, 0], s[:, 0, 0].sqrt(), double(self.scale_for(pred))
        x = self.held(double(pred), (mu - WIDTH * s).amin(), (mu + WIDTH * s).amax())
        sides = torch.stack([_log_half(x - mu, s, b), _log_half(mu - x, s, b)])
        sides = torch.logsumexp(sides, 0)  # (N, K); the second derivative of logaddexp overflows
        return (torch.logsumexp(weights.log() + sides, -1) - torch.log(4 * b)).to(pred.dtype)


def _log_half(d: Tensor, s: Tensor, b: Tensor) -> Tensor:
    """log[ e^(-d^2/2s^2) erfcx(z) ], z = (s/b - d/s)/sqrt(2): by erfc, in [1, 2], for z < 0."""
    z = (s / b - d / s) / math.sqrt(2)
    far = -(d / s).square() / 2 + _log_erfcx(z.clamp(min=0))
    near = (s / b).square() / 2 - d / b + torch.log(torch.special.erfc(z.clamp(max=0)))
    return torch.where(z > 0, far, near)


def _log_erfcx(z: Tensor) -> Tensor:
    """log erfcx(z) for z >= 0: from 50 by its asymptotic series, whose slope does not cancel."""
    t = 0.5 / z.clamp(min=50).square()
    series = torch.log1p(-t * (1 - 3 * t * (1 - 5 * t * (1 - 7 * t))))
    large = series - torch.log(z.clamp(min=50) * math.sqrt(math.pi))
    return torch.where(z < 50, torch.log(torch.special.erfcx(z.clamp(max=50))), large)


class Huber(Robust):
    """Gaussian within `delta` scales of the prediction, Laplace beyond. With a flat prior it is
    scale^2 times Huber's function, i.e. torch's huber_loss at delta * scale.
    """

    def __init__(
        self, scale: Any = 1.0, delta: float = 1.0, learn_scale: bool = False, floor: float = 1e-3
    ):
        super().__init__(scale, learn_scale, floor)
        if not delta > 0:
            raise ValueError(f"delta is a number of scales and must be positive, got {delta}.")
        self.delta = float(delta)
        core = math.sqrt(2 * math.pi) * math.erf(delta / math.sqrt(2))
        self.log_z = math.log(core + 2 / delta * math.exp(-(delta**2) / 2))

    @property
    def unit(self) -> Tensor:
        return self.value.detach().square().mean()

    def energy(self, r: Tensor) -> Tensor:
        inner = r.abs().clamp(max=self.delta)
        return inner * (r.abs() - inner / 2)

    def spread(self, residual: Tensor) -> Tensor:
        deviation = residual.abs().nanmedian(0).values
        return deviation / 0.6745  # the normal distribution's median absolute deviation
