"""Theorem 1 as a loss, for any likelihood and any label prior:

    -log p_train(y | x) = -log p_bal(y | x) + log E_{y' ~ p_train}[ p_bal(y' | x) ] - log p_train(y)

The last term has no gradient and is dropped where labels are continuous; `full_nll` keeps it.

The paper's three losses are one line each:
    GAI = Gaussian x GaussianMixture (Eq. 3.12)
    BMC = Gaussian x Batch (Eq. 3.14)
    BNI = Gaussian x Bins (Eq. 3.16)

N: rows; D: label dimensions; W: the likelihood's width.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from losses.fused import Kept, gaussian_mean
from losses.grid import is_eager
from losses.likelihoods import Gaussian, Likelihood
from losses.mixture import GaussianMixture
from losses.priors import Batch, Bins, Prior


class BalancedLoss(nn.Module):
    """loss(pred (N, W), target (N, D), weight=None) -> scalar, the (weighted) mean over the rows.

    `strength` scales the balancing term: 1 is Theorem 1, 0 the plain loss. The loss is multiplied
    by the likelihood's unit (2 sigma^2 for a Gaussian, without gradient), so that it has the
    plain loss's scale; it can be negative, because log p_train(y) is dropped. `full_nll=True`
    gives -log p_train(y | x) itself.

    Computed in float32 or better whatever the autocast state. A learned sigma is a parameter of
    the loss: give `loss.parameters()` to the optimiser.
    """

    def __init__(
        self, likelihood: Likelihood, prior: Prior, strength: float = 1.0, full_nll: bool = False
    ):
        super().__init__()
        if not (math.isfinite(strength) and strength >= 0):
            raise ValueError(f"strength must be a finite number >= 0, got {strength}")
        self.likelihood, self.prior = likelihood, prior
        self.strength, self.full_nll = strength, full_nll
        self.kept = Kept()

    def forward(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        if torch.is_autocast_enabled(pred.device.type):
            with torch.autocast(pred.device.type, enabled=False):
                return self(pred, target, weight)
        pred, target = self.likelihood.rows(pred, target)
        check_rows(target, weight)
        pred = pred.to(torch.promote_types(pred.dtype, torch.float32))
        target = target.to(pred.dtype)
        weight = weight if weight is None else weight.to(pred.dtype)
        self.likelihood.start(pred, target, weight)
        try:
            return self._mean(pred, target, weight)
        finally:
            if self.likelihood.guess is not None:
                self.likelihood.guess = None  # it is of this batch alone

    def _mean(self, pred: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        fused = self._fused(pred, target, weight)
        if fused is not None:
            return fused
        rows = self.rows(pred, target)
        mean = rows.mean() if weight is None else weight @ rows / weight.sum()
        return mean if self.full_nll else self.likelihood.unit * mean

    def rows(self, pred: Tensor, target: Tensor) -> Tensor:
        """Theorem 1: (N, W), (N, D) -> (N,)."""
        log_p = self.likelihood.log_prob(target, pred)
        balance = self.prior.log_evidence(self.likelihood, pred, target)
        if self.full_nll or self.prior.counts_labels:
            balance = balance - self.prior.log_prob(target)
        return (balance if self.strength == 1 else self.strength * balance) - log_p

    def _fused(self, pred: Tensor, target: Tensor, weight: Tensor | None) -> Tensor | None:
        """The loss in one step, where a Gaussian meets a prior made of single components."""
        gaussian = self.likelihood
        if self.full_nll or type(gaussian) is not Gaussian or self.prior.form is None:
            return None
        if gaussian.guess is not None:
            return None
        if self.prior.form == "mixture" and gaussian.per_dimension:
            return None
        return gaussian_mean(pred, target, gaussian, self.prior, self.strength, weight, self.kept)


def GAI(
    prior_or_path: GaussianMixture | str | Path,
    sigma: Any = 1.0,
    learn_sigma: bool = False,
    **options,
) -> BalancedLoss:
    """GMM-based Analytical Integration, from a mixture or a file that `GaussianMixture.save`
    wrote.
    """
    given = isinstance(prior_or_path, GaussianMixture)
    prior = prior_or_path if given else GaussianMixture.load(prior_or_path)
    return BalancedLoss(Gaussian(sigma, learn_sigma), prior, **options)


def BMC(
    sigma: Any = 1.0,
    learn_sigma: bool = False,
    queue: int = 0,
    max_atoms: int | None = None,
    **options,
) -> BalancedLoss:
    """Batch-based Monte-Carlo: needs nothing but the batch."""
    return BalancedLoss(Gaussian(sigma, learn_sigma), Batch(queue, max_atoms), **options)


def BNI(prior: Bins, sigma: Any = 1.0, learn_sigma: bool = False, **options) -> BalancedLoss:
    """Bin-based Numerical Integration, from `Bins(centers, weights)` or `Bins.fit(labels,
    edges)`.
    """
    return BalancedLoss(Gaussian(sigma, learn_sigma), prior, **options)


def check_rows(target: Tensor, weight: Tensor | None) -> None:
    """What only the numbers tell; skipped where Python cannot look at them (torch.compile,
    torch.func).
    """
    if weight is not None and weight.shape != target.shape[:1]:
        raise ValueError(f"expected weight (N,) = ({len(target)},), got {tuple(weight.shape)}")
    if not is_eager(target):
        return
    if not math.isfinite(target.sum().item()) and not torch.isfinite(target).all():
        bad = (~torch.isfinite(target)).any(-1).nonzero()[:, 0].tolist()
        raise ValueError(
            f"targets must be finite; rows {bad[:5]} are not. Filter or mask them first."
        )
    if weight is not None and not weight.sum() > 0:
        raise ValueError(f"weights must sum to a positive number, got {weight.sum().item()}")
