"""Theorem 1 as a loss, for any likelihood and any label prior:

    -log p_train(y | x) = -log p_bal(y | x) + log E_{y' ~ p_train}[ p_bal(y' | x) ] - log p_train(y)

The last term has no gradient and is dropped where labels are continuous; `full_nll` keeps it.

The paper's three losses are one line each:
    GAI = Gaussian x GaussianMixture (Eq. 3.12)
    BMC = Gaussian x Batch (Eq. 3.14)
    BNI = Gaussian x Bins (Eq. 3.16)

N: samples; D: label dimensions; W: the likelihood's width.
"""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .batches import check_samples, samples
from .likelihoods import Gaussian, Likelihood
from .priors import Batch, Flat, Prior

if TYPE_CHECKING:
    from .mixture import GaussianMixture
    from .priors import Bins

NOTHING = nullcontext()
SMALL = 1024  # numbers of a batch up to which the definition is always the fastest


class BalancedLoss(nn.Module):
    """loss(pred (N, W), target (N, D), weight=None) -> scalar, the (weighted) mean over samples.

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
            raise ValueError(f"strength must be a finite number >= 0, got {strength}.")
        if full_nll and isinstance(prior, Flat):
            raise ValueError(
                "full_nll needs log p_train(y), which a flat prior does not have; use "
                "full_nll=False, another prior, or -likelihood.log_prob(target, pred)."
            )
        self.likelihood, self.prior = likelihood, prior
        self.strength, self.full_nll = strength, full_nll

    def forward(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        with torch.autocast(pred.device.type, enabled=False):
            pred = pred.to(torch.promote_types(pred.dtype, torch.float32))
            pred, target = self.likelihood.as_rows(pred, target)
            target, weight = check_samples(pred, target, weight)
            likelihood: Any = self.likelihood
            auto = likelihood.started(pred, target, weight) if likelihood.attempts else NOTHING
            with auto:
                if pred.numel() > SMALL and type(self) is BalancedLoss:
                    from .fast import mean_loss

                    if (mean := mean_loss(self, pred, target, weight)) is not None:
                        return mean
                rows = self.rows(pred, target, weight)
                mean = rows.mean() if weight is None else weight @ rows / weight.sum()
                return mean if self.full_nll else (likelihood.unit * mean).to(mean.dtype)

    def rows(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Theorem 1: (N, W), (N, D) -> (N,). Samples of weight 0 are no labels of a batch prior."""
        labels = target if weight is None else samples(target, weight)
        log_p = self.likelihood.log_prob(target, pred)
        balance = self.prior.log_evidence(self.likelihood, pred, labels)
        if self.full_nll or self.prior.counts_labels:
            balance = balance - self.prior.log_prob(target)
        return balance - log_p if self.strength == 1 else self.strength * balance - log_p


def GAI(
    prior_or_path: "GaussianMixture | str | Path",
    sigma=1.0,
    learn_sigma: bool = False,
    **options,
) -> BalancedLoss:
    """GMM-based Analytical Integration, from a mixture or a file that its `save` wrote."""
    prior = prior_or_path
    if isinstance(prior, str | Path):
        from .mixture import GaussianMixture

        prior = GaussianMixture.load(prior)
    return BalancedLoss(Gaussian(sigma, learn_sigma), prior, **options)


def BMC(
    sigma=1.0, learn_sigma: bool = False, queue: int = 0, max_atoms: int | None = None, **options
) -> BalancedLoss:
    """Batch-based Monte-Carlo: needs nothing but the batch."""
    return BalancedLoss(Gaussian(sigma, learn_sigma), Batch(queue, max_atoms), **options)


def BNI(prior: "Bins", sigma=1.0, learn_sigma: bool = False, **options) -> BalancedLoss:
    """Bin-based Numerical Integration, from `Bins(centers, weights)` or a `Bins.fit`."""
    return BalancedLoss(Gaussian(sigma, learn_sigma), prior, **options)
