"""p_bal(y | x; theta): the distribution of a label, given a model's output.

A likelihood defines the number of model outputs per label (`width`), the log-density of a label
(`log_prob`), the point prediction (`decode`), and the averages of Theorem 1 over single labels
(`log_evidence_atoms`) and, in closed form, over Gaussians (`log_evidence_mixture`).

N: samples; D: label dimensions; W = width(D): model outputs per sample; K: atoms, components.
"""

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from .batches import double, gather, is_readable, is_transformed, samples

if TYPE_CHECKING:
    from .mixture import GaussianMixture

ATTEMPTS = 3  # batches that a scale given as "auto" may be estimated from


class Likelihood(nn.Module):
    """Base class: a likelihood that no prior can be averaged over."""

    attempts = 0  # batches that may still set a scale given as "auto"
    learned, floor = False, 0.0  # whether the scale is a parameter, and its least value

    def width(self, dims: int) -> int:
        """Return how many numbers a model outputs for a label of `dims` dimensions."""
        return dims

    @property
    def unit(self) -> Tensor | float:
        """Factor of the loss, without gradient, so that learning rates carry over."""
        return 1.0

    def log_norm(self, pred: Tensor) -> Tensor:
        """-log_prob at its peak: the constant that a flat prior cancels."""
        return pred.new_zeros(())

    def as_rows(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return pred (N, W) and target (N, D); shapes that would broadcast are an error. The
        target may be (N,) if pred is (N,) or W > 1.
        """
        given = f"pred {tuple(pred.shape)} and target {tuple(target.shape)}"
        if pred.ndim == target.ndim == 1:
            pred, target = pred[:, None], target[:, None]
        elif target.ndim == 1 and self.width(1) > 1:
            target = target[:, None]
        dims = target.shape[-1] if target.ndim else 1
        width = self.width(dims)
        if target.ndim != 2 or pred.shape != (target.shape[0], width):
            expected = f"{type(self).__name__} expects pred (N, {width}) and target (N, {dims})"
            raise ValueError(f"{expected}, got {given}; reshape both.")
        return pred, target

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        """(N, D), (N, W) -> (N,)."""
        raise TypeError(f"{type(self).__name__} defines no log_prob")

    def decode(self, pred: Tensor) -> Tensor:
        """(N, W) -> (N, D): the point prediction that evaluation uses."""
        return pred

    def held(self, pred: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """pred (N, W), where the evidence of labels within low, high (D,) is taken."""
        return pred

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        """log sum_k w_k p(a_k | pred): (N, W), (K, D), (K,) -> (N,)."""
        reason = "cannot be averaged over label values; use Flat() or Classes."
        raise ValueError(f"{type(self).__name__} {reason}")

    def log_evidence_bins(
        self, pred: Tensor, atoms: Tensor, log_weights: Tensor, power: float, widths: Tensor
    ) -> Tensor:
        """The same for atoms that stand for bins of widths (K,), with weights p_train^power."""
        return self.log_evidence_atoms(pred, atoms, log_weights)

    def log_evidence_classes(self, pred: Tensor, log_weights: Tensor) -> Tensor:
        """log sum_k w_k p(class k | pred): (N, W), (K,) -> (N,)."""
        name = type(self).__name__
        raise ValueError(f"Class frequencies do not apply to a {name} likelihood; use Bins.")

    def log_evidence_mixture(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        """log sum_k w_k integral p(y | pred) N(y; mu_k, Sigma_k) dy: (N, W) -> (N,)."""
        message = f"no closed form for a {type(self).__name__} likelihood; use Bins or Batch()."
        raise ValueError(f"GaussianMixture has {message}")


class Location(Likelihood):
    """Independent noise of one shape around the prediction, in units of a scale:
        log p(y | pred) = -sum_d [ energy((y_d - pred_d) / scale_d) + log scale_d + log Z ]

    The scale is one number or one per dimension, fixed or learned (raw, as in the released code),
    at least `floor`. "auto" (or one per dimension) estimates it in `started`; before, it is NaN.
    """

    symbol = "scale"  # name of the parameter
    log_z, normalised = 0.0, True

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is created
    def __init__(self, scale: Any, learn: bool, floor: float):
        super().__init__()
        if not floor > 0:
            raise ValueError(f"The floor of {self.symbol} must be positive, got {floor}.")
        words = scale if isinstance(scale, list | tuple) else [scale]
        if any(isinstance(word, str | None) for word in words):
            if any(word != "auto" for word in words):
                expected = f'{self.symbol} must be a positive number or "auto"'
                raise ValueError(f"{expected}, got {scale!r}.")
            value = torch.full((len(words),) if words is scale else (), math.nan)
        else:
            value = torch.as_tensor(scale).detach().clone()
            value = value.to(torch.promote_types(value.dtype, torch.float32))
            if not ((value > 0) & value.isfinite()).all():
                message = f"must be positive and finite, got {value.tolist()}."
                raise ValueError(f"{self.symbol} is a standard deviation and {message}")
        self.floor, self.learned = float(floor), learn
        self.attempts = ATTEMPTS if value.isnan().any() else 0
        value = value.clamp(min=self.floor)
        setattr(self, self.symbol, nn.Parameter(value) if learn else nn.Buffer(value))

    def energy(self, r: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} defines no energy")

    def spread(self, residual: Tensor) -> Tensor:
        """Scale of residuals (N, D) of mean zero: (D,); NaN values are skipped."""
        raise TypeError(f"{type(self).__name__} defines no spread")

    @property
    def raw(self) -> Tensor:
        """The parameter or buffer, () or (D,)."""
        return getattr(self, self.symbol)

    @property
    def value(self) -> Tensor:
        """The scale in use, () or (D,)."""
        return self.scale_for()

    def scale_for(self, pred: Tensor | None = None) -> Tensor:
        """The scale in use, () or (D,), at least the floor; in the precision of pred (N, D)."""
        scale = getattr(self, self.symbol)
        if self.attempts:
            scale = scale.nan_to_num(1.0)
        if scale.requires_grad:
            scale = scale + (self.floor - scale.detach()).clamp(min=0)
        else:
            scale = scale.clamp(min=self.floor)
        if pred is None:
            return scale
        if scale.ndim and scale.shape != pred.shape[-1:]:
            raise ValueError(
                f"{self.symbol} has shape {tuple(scale.shape)}, the labels have {pred.shape[-1]} "
                f"dimensions; give one {self.symbol}, or one per dimension."
            )
        return scale.to(pred.dtype)

    def started(self, pred: Tensor, target: Tensor, weight: Tensor | None) -> Any:
        """Estimate a scale given as "auto" from the batch; 1 if `ATTEMPTS` batches had no spread.
        Only an ordinary call in training mode keeps it; else it is the scale of this call.
        """
        ordinary = self.training and not is_transformed()
        with torch.no_grad():
            residual = samples((target - pred).float(), weight)
            residual = residual.where(residual.isfinite().all(-1, keepdim=True), math.nan)
            residual = gather(residual) if ordinary else residual
            several, residual = (~residual[:, 0].isnan()).sum() > 1, residual - residual.nanmean(0)
            found = self.spread(residual if self.raw.ndim else residual.reshape(-1, 1))
            found = torch.where(several & found.isfinite(), found.clamp(min=self.floor), math.nan)
            found = found.to(self.raw.dtype)[... if self.raw.ndim else 0]
        if not ordinary:
            scale = torch.where(self.raw.isnan(), found, self.raw)
            return _reparametrize_module(self, {self.symbol: scale})
        self.attempts -= 1
        with torch.no_grad():
            scale = torch.where(self.raw.isnan(), found, self.raw)
            self.raw.copy_(scale if self.attempts else scale.nan_to_num(1.0))
            if is_readable(self.raw) and self.raw.isfinite().all():
                self.attempts = 0
        return nullcontext()

    def _load_from_state_dict(self, state_dict, prefix, *others):  # pyright: ignore
        """The state decides: a number is kept, NaN is estimated from the next batch."""
        super()._load_from_state_dict(state_dict, prefix, *others)
        if prefix + self.symbol in state_dict:
            self.attempts = ATTEMPTS if state_dict[prefix + self.symbol].isnan().any() else 0

    def log_norm(self, pred: Tensor) -> Tensor:
        log_scale = self.scale_for(pred).log()
        return self.normalised * (log_scale + self.log_z).expand(pred.shape[-1]).sum()

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        r = (target - pred) / self.scale_for(pred)
        return -self.energy(r).sum(-1) - self.log_norm(pred)

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        x = self.held(pred, atoms.amin(0), atoms.amax(0))
        r = (x[:, None] - atoms) / self.scale_for(pred)  # (N, K, D)
        logits = log_weights - self.energy(r).sum(-1)  # (N, K)
        return torch.logsumexp(logits, -1).to(pred.dtype) - self.log_norm(pred)


class Gaussian(Location):
    """N(y; pred, sigma^2 I). With a flat prior it is MSE, |y - pred|^2 summed over dimensions."""

    symbol = "sigma"
    log_z = math.log(2 * math.pi) / 2

    def __init__(self, sigma: Any = 1.0, learn_sigma: bool = False, floor: float = 1e-3):
        super().__init__(sigma, learn_sigma, floor)

    @property
    def unit(self) -> Tensor:
        return 2 * self.scale_for().detach().square().mean()

    def energy(self, r: Tensor) -> Tensor:
        return r.square() / 2

    def spread(self, residual: Tensor) -> Tensor:
        return residual.square().nanmean(0).sqrt()

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        sigma = self.scale_for(pred)
        log_p = ((target - pred).square() * (-0.5 / sigma.square())).sum(-1)
        return log_p - self.normalised * (sigma.log() + self.log_z).expand(pred.shape[-1]).sum()

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        """A log-sum-exp over squared distances (N, K), without (N, K, D)."""
        sigma = self.scale_for(pred)
        if pred.shape[-1] == 1:
            logits = torch.addcmul(log_weights, (pred - atoms.mT).square(), -0.5 / sigma.square())
        else:  # |x - a|^2 = |x|^2 + |a|^2 - 2 x.a, centred and in float64, because it cancels
            middle, scale = double(atoms).mean(0), double(sigma)
            x, a = ((double(points) - middle) / scale for points in (pred, atoms))
            half = (x * x).sum(-1, keepdim=True) / 2 + (a * a).sum(-1) / 2 - x @ a.mT
            logits = log_weights - half
        norm = self.normalised * (sigma.log() + self.log_z).expand(pred.shape[-1]).sum()
        return torch.logsumexp(logits, -1).to(pred) - norm

    def log_evidence_mixture(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        """GAI: log sum_k w_k N(pred; mu_k, Sigma_k + sigma^2 I)."""
        return mixture.log_density(pred, self.scale_for(pred))
