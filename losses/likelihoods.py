"""p_bal(y | x; theta): what a model's output says about a label.

A likelihood owns how many numbers the model must put out per label (`width`), the log-density of
a label (`log_prob`), the point prediction (`decode`), and the two ways of averaging itself over a
label prior that Theorem 1 needs: over labels given one by one (`log_evidence_atoms`) and over a
mixture of Gaussians (`log_evidence_mixture`), the latter only where a closed form exists.

N: rows; D: label dimensions; W = width(D): numbers per row that the model outputs; K: atoms,
components.
"""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .checks import is_transformed

if TYPE_CHECKING:
    from .mixture import GaussianMixture

LOOKS = 3  # batches that a scale given as "auto" may be started from


def full_precision(method: Callable) -> Callable:
    """A method of a prediction, computed in float32 or better whatever the autocast state."""

    @functools.wraps(method)
    def computed(self, pred: Tensor, *others, **options):
        pred = pred.to(torch.promote_types(pred.dtype, torch.float32))
        if not torch.is_autocast_enabled(pred.device.type):
            return method(self, pred, *others, **options)
        with torch.autocast(pred.device.type, enabled=False):
            return method(self, pred, *others, **options)

    return computed


class Likelihood(nn.Module):
    """The base: a likelihood that no prior can be averaged over in closed form."""

    def width(self, dims: int) -> int:
        """How many numbers a model outputs for a label of `dims` dimensions."""
        return dims

    @property
    def unit(self) -> Tensor | float:
        """What the loss is multiplied by, without gradient, so that learning rates carry over."""
        return 1.0

    def log_norm(self, pred: Tensor) -> Tensor:
        """-log_prob at its peak: the constant that a flat prior cancels."""
        return pred.new_zeros(())

    def rows(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """pred (N, W) and target (N, D), checked: a pair that would broadcast is refused."""
        if pred.ndim == target.ndim == 1:
            pred, target = pred[:, None], target[:, None]
        if pred.ndim != 2 or pred.shape != target.shape:
            raise ValueError(
                f"{type(self).__name__} expects pred and target of one shape (N, D), got pred "
                f"{tuple(pred.shape)} and target {tuple(target.shape)}; reshape both to rows, "
                "e.g. pred.reshape(-1, 1), target.reshape(-1, 1)."
            )
        return pred, target

    guess: Tensor | None = None  # the scale of the batch at hand, where it cannot be kept

    def start(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Called with every batch before the loss: a place to start parameters from data."""

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        """(N, D), (N, W) -> (N,)."""
        raise TypeError(f"{type(self).__name__} defines no log_prob")

    def decode(self, pred: Tensor) -> Tensor:
        """(N, W) -> (N, D): the point prediction that evaluation uses."""
        return pred

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        """log sum_k w_k p(a_k | pred): (N, W), (K, D), (K,) -> (N,)."""
        raise ValueError(
            f"{type(self).__name__} cannot be averaged over label values; use prior=flat or, for "
            "class labels, prior=classes."
        )

    def log_evidence_bins(
        self, pred: Tensor, atoms: Tensor, log_weights: Tensor, power: float
    ) -> Tensor:
        """The same where the atoms stand for bins, and their weights are p_train^power."""
        return self.log_evidence_atoms(pred, atoms, log_weights)

    def log_evidence_classes(self, pred: Tensor, log_weights: Tensor) -> Tensor:
        """log sum_k w_k p(class k | pred): (N, W), (K,) -> (N,)."""
        raise ValueError(
            f"class frequencies say nothing about a {type(self).__name__} likelihood; use "
            "prior=bins for real labels, or a Categorical likelihood."
        )

    def log_evidence_mixture(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        """log sum_k w_k integral p(y | pred) N(y; mu_k, Sigma_k) dy: (N, W) -> (N,)."""
        raise ValueError(
            f"GaussianMixture has no closed form for a {type(self).__name__} likelihood; "
            "use prior=bins or prior=batch."
        )


class Location(Likelihood):
    """Independent noise of one shape around the prediction, in units of a scale:

        log p(y | pred) = -sum_d [ energy((y_d - pred_d) / scale_d) + log scale_d + log Z ]

    The scale is positive: one number or one per dimension, fixed or learned (raw, as in the
    released code), never below `floor`. "auto", or one "auto" per dimension, starts it from the
    first training batch, see `start`; until then the parameter is NaN.
    """

    symbol = "scale"  # the name of the parameter
    log_z = 0.0

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is made
    def __init__(self, scale: float | str | Any, learn: bool, floor: float):
        super().__init__()
        self.floor, self.learned = float(floor), learn
        words = (
            [scale] if isinstance(scale, str) else scale if isinstance(scale, list | tuple) else []
        )
        self.automatic = any(isinstance(word, str) for word in words)
        if self.automatic and any(word != "auto" for word in words):
            raise ValueError(f'{self.symbol} is a positive number or "auto", got {scale!r}')
        self.looks = LOOKS if self.automatic else 0  # batches that may still start it
        if not floor > 0:
            raise ValueError(f"the floor of {self.symbol} must be positive, got {floor}")
        if self.automatic:
            scale = math.nan if isinstance(scale, str) else [math.nan for _ in words]
        value = torch.as_tensor(scale)
        value = value.detach().clone().to(torch.promote_types(value.dtype, torch.float32))
        if not self.automatic and not ((value > 0) & value.isfinite()).all():
            raise ValueError(
                f"{self.symbol} is a standard deviation and must be positive and finite, got "
                f"{value.tolist()}"
            )
        if not self.automatic:
            value = value.clamp(min=self.floor)
        if learn:
            self.register_parameter(self.symbol, nn.Parameter(value))
        else:
            self.register_buffer(self.symbol, value)

    def energy(self, r: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} defines no energy")

    def spread(self, residual: Tensor) -> Tensor:
        """The scale of residuals (N, D) that are zero on average: (D,); NaN does not count."""
        raise TypeError(f"{type(self).__name__} defines no spread")

    @property
    def value(self) -> Tensor:
        """The scale in use, () or (D,): it stays at the floor below it, and its gradient can lift
        it.
        """
        raw = getattr(self, self.symbol)
        if self.automatic:
            raw = torch.where(raw.isnan(), 1.0 if self.guess is None else self.guess, raw)
        return raw + (self.floor - raw.detach()).clamp(min=0)

    @property
    def per_dimension(self) -> bool:
        return getattr(self, self.symbol).ndim > 0

    def noise(self, pred: Tensor) -> Tensor:
        """The scale in use, in the precision of pred and checked against its dimensions."""
        scale = self.value.to(pred.dtype)
        if scale.ndim and scale.shape != pred.shape[-1:]:
            raise ValueError(
                f"{self.symbol} has shape {tuple(scale.shape)}, the labels have {pred.shape[-1]} "
                f"dimensions; give one {self.symbol}, or one per dimension."
            )
        return scale

    @torch.no_grad()
    def start(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Start a scale given as "auto": the spread of the residuals about their own mean, over
        the finite rows (of all ranks) with a weight above zero; 1 where `LOOKS` batches had less
        than two of them.

        Only an ordinary call in training mode is kept. In eval mode and inside torch.func, a scale
        that has not started is that of the batch at hand (`guess`). Nothing is read from a GPU.
        """
        if not self.looks:
            return
        raw = getattr(self, self.symbol)
        compiled = torch.compiler.is_compiling()
        keep = self.training and not is_transformed()
        scale = torch.where(raw.isnan(), self._of_batch(pred, target, weight, keep), raw)
        if keep:
            self.looks -= 1
            raw.copy_(scale if self.looks else scale.nan_to_num(1.0))
            if not compiled and raw.device.type == "cpu" and not raw.isnan().any():
                self.looks = 0
                return
        self.guess = scale.nan_to_num(1.0)

    def _of_batch(
        self, pred: Tensor, target: Tensor, weight: Tensor | None, joined: bool
    ) -> Tensor:
        """The spread of a batch in the scale's shape, NaN where it has none."""
        from .priors import gather_rows  # which imports this module

        residual = (target - pred).float()
        counts = residual.isfinite().all(-1)
        counts = counts if weight is None else counts & (weight > 0)
        residual = torch.where(counts[:, None], residual, math.nan)
        residual = gather_rows(residual) if joined else residual
        some = (~residual[:, 0].isnan()).sum() > 1
        residual = residual - residual.nanmean(0)
        scale = self.spread(residual if self.per_dimension else residual.reshape(-1, 1))
        scale = torch.where(some & scale.isfinite(), scale.clamp(min=self.floor), math.nan)
        return scale.to(getattr(self, self.symbol).dtype)[... if self.per_dimension else 0]

    def _load_from_state_dict(self, state_dict, prefix, *others):  # pyright: ignore
        """A number that is loaded is kept; a scale that had not started starts with the next
        batch, unless this one was given as a number.
        """
        loaded = state_dict.get(prefix + self.symbol)
        if loaded is not None:
            unstarted = bool(loaded.isnan().any())
            if unstarted and not self.automatic:
                *_, errors = others
                errors.append(
                    f'{prefix}{self.symbol} was given as "auto" and had not started; give it as '
                    '"auto" here, too, or leave it out of the state.'
                )
                return
            self.looks = LOOKS if unstarted else 0
        super()._load_from_state_dict(state_dict, prefix, *others)

    def log_norm(self, pred: Tensor) -> Tensor:
        return self._log_norm(self.noise(pred), pred.shape[-1])

    def _log_norm(self, scale: Tensor, dims: int) -> Tensor:
        log_scale = torch.log(scale)
        return (log_scale.sum() if scale.ndim else dims * log_scale) + dims * self.log_z

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        scale = self.noise(pred)
        energy = self.energy((target - pred) / scale)
        energy = energy[..., 0] if energy.shape[-1] == 1 else energy.sum(-1)
        return -self._log_norm(scale, pred.shape[-1]) - energy

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        r = (pred[:, None] - atoms) / self.noise(pred)  # (N, K, D)
        logits = log_weights - self.energy(r).sum(-1)  # (N, K)
        return torch.logsumexp(logits, -1) - self.log_norm(pred)


class Gaussian(Location):
    """N(y; pred, sigma^2 I). With a flat prior it is MSE, |y - pred|^2 summed over the dimensions.

    Example:
        >>> loss = BalancedLoss(Gaussian(sigma=1.0, learn_sigma=True), Batch())
    """

    symbol = "sigma"
    log_z = math.log(2 * math.pi) / 2

    def __init__(self, sigma: Any = 1.0, learn_sigma: bool = False, floor: float = 1e-3):
        super().__init__(sigma, learn_sigma, floor)

    @property
    def unit(self) -> Tensor:
        square = self.value.detach().square()
        return 2 * (square.mean() if square.ndim else square)

    def energy(self, r: Tensor) -> Tensor:
        return r.square() / 2

    def spread(self, residual: Tensor) -> Tensor:
        return residual.square().nanmean(0).sqrt()

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        """In several dimensions |r|^2 = |x|^2 + |a|^2 - 2 x.a, so that (N, K, D) is never made;
        in float64, because it cancels.
        """
        if pred.shape[-1] == 1:
            return super().log_evidence_atoms(pred, atoms, log_weights)
        middle, sigma = atoms.mean(0), self.noise(pred)
        x, a = ((double(rows) - double(middle)) / sigma for rows in (pred, atoms))
        half = (x * x).sum(-1, keepdim=True) / 2 + (a * a).sum(-1) / 2 - x @ a.mT  # (N, K)
        return torch.logsumexp(log_weights - half, -1).to(pred) - self.log_norm(pred)

    def log_evidence_mixture(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        """GAI: log sum_k w_k N(pred; mu_k, Sigma_k + sigma^2 I)."""
        return mixture.log_density(pred, self.noise(pred))


class GaussianKernel(Gaussian):
    """exp(-|y - pred|^2 / 2 sigma^2): a Gaussian without its normaliser, as in the released loss of
    human meshes.

    Theorem 1 cannot tell them apart, as the normaliser cancels. At another strength the Gaussian
    keeps (1 - strength) D log sigma, which holds a learned sigma at the residuals' spread; the
    kernel keeps nothing, and its sigma grows.
    """

    def _log_norm(self, scale: Tensor, dims: int) -> Tensor:
        return scale.new_zeros(())

    def log_evidence_mixture(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        log_norm = super()._log_norm(self.noise(pred), pred.shape[-1])
        return super().log_evidence_mixture(pred, mixture) + log_norm


def double(x: Tensor) -> Tensor:
    """x in float64, where the device has it."""
    return x if x.device.type == "mps" else x.double()
