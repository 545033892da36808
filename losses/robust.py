"""Likelihoods with heavier tails than the Gaussian: Theorem 1 for the L1 and the Huber loss, which
the paper leaves to future work.

N: rows; D: label dimensions; K: atoms, components.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from losses.grid import interpolate, pays_off
from losses.likelihoods import Location

if TYPE_CHECKING:
    from losses.mixture import GaussianMixture


class Laplace(Location):
    """Independent Laplace noise of scale b. With a flat prior it is the L1 loss, summed over
    dimensions.
    """

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

    def log_sum(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        if pred.shape[-1] == 1:
            return super().log_sum(pred, atoms, log_weights)
        scale = self.noise(pred)
        distance = torch.cdist(pred / scale, atoms / scale, p=1)  # (N, K), never (N, K, D)
        return torch.logsumexp(log_weights - distance, -1) - self.log_norm(pred)

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        """Many rows in one dimension: |x - a| splits at x, and each side is a running sum.

        With the atoms sorted and x between a_i and a_(i+1),
            sum_k w_k e^-|x - a_k|/b = e^-(x - a_i)/b L_i + e^-(a_(i+1) - x)/b R_(i+1)
        where L_i and R_i collect the atoms up to and from a_i: exact, kinks included.
        """
        if not pays_off(pred, len(atoms)):
            return self.log_sum(pred, atoms, log_weights)
        order = atoms[:, 0].argsort()
        a = atoms[order, 0].double()
        b, log_w = self.noise(a[:, None]), log_weights[order].double()
        left = torch.logcumsumexp(log_w + a / b, 0) - a / b
        right = (torch.logcumsumexp((log_w - a / b).flip(0), 0)).flip(0) + a / b
        none = left.new_full((1,), -math.inf)
        left, right = (
            torch.cat([none, left]).to(pred.dtype),
            torch.cat([right, none]).to(pred.dtype),
        )
        x, b, a = pred[:, 0], self.noise(pred), a.to(pred.dtype)
        above = torch.searchsorted(a, x.detach())
        below = (above - 1).clamp(min=0)
        from_left = left[above] - (x - a[below]) / b
        from_right = right[above] - (a[above.clamp(max=len(a) - 1)] - x) / b
        return torch.logaddexp(from_left, from_right) - self.log_norm(pred)

    def log_evidence_mixture(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        """The normal-Laplace density. With d = pred - mu, s^2 = Sigma, z = (s/b -+ d/s) / sqrt(2):

        integral = [ e^(-d^2/2s^2) erfcx(z_-) + e^(-d^2/2s^2) erfcx(z_+) ] / 4b
        """
        if pred.shape[-1] > 1:
            raise ValueError(
                "GaussianMixture has a closed form for a Laplace likelihood only in one dimension, "
                f"got {pred.shape[-1]}; use prior=batch."
            )
        if pays_off(pred, len(mixture)):
            return interpolate(lambda x: self._normal_laplace(x, mixture), pred, self.learned)
        return self._normal_laplace(pred, mixture)

    def _normal_laplace(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        b = self.noise(pred)
        d = pred - mixture.means[:, 0].to(pred.dtype)  # (N, K)
        s = mixture.eigenvalues[:, 0].to(pred.dtype).sqrt()
        sides = torch.logaddexp(_log_half(d, s, b), _log_half(-d, s, b))
        log_w = mixture.log_weights.to(pred.dtype)
        return torch.logsumexp(log_w + sides, -1) - torch.log(4 * b)


def _log_half(d: Tensor, s: Tensor, b: Tensor) -> Tensor:
    """log[ e^(-d^2/2s^2) erfcx(z) ], z = (s/b - d/s)/sqrt(2): erfcx for z > 0, erfc in [1, 2]
    below.
    """
    z = (s / b - d / s) / math.sqrt(2)
    far = -(d / s).square() / 2 + torch.log(torch.special.erfcx(z.clamp(min=0)))
    near = (s / b).square() / 2 - d / b + torch.log(torch.special.erfc(z.clamp(max=0)))
    return torch.where(z > 0, far, near)


class Huber(Location):
    """Gaussian within `delta` scales of the prediction, Laplace beyond.

    With a flat prior it is scale^2 times Huber's function, i.e. torch's huber_loss at delta *
    scale.
    """

    def __init__(
        self, scale: Any = 1.0, delta: float = 1.0, learn_scale: bool = False, floor: float = 1e-3
    ):
        super().__init__(scale, learn_scale, floor)
        if not delta > 0:
            raise ValueError(f"delta is a number of scales and must be positive, got {delta}")
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
