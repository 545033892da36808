"""Theorem 1 as a loss, for any likelihood and any label prior:

    -log p_train(y | x) = -log p_bal(y | x) + log E_{y' ~ p_train}[ p_bal(y' | x) ] - log p_train(y)

The last term has no gradient and is dropped where labels are continuous; `full_nll` keeps it.
The paper's three: GAI = Gaussian x GaussianMixture, BMC = Gaussian x Batch, BNI = Gaussian x Bins.

N: samples; D: label dimensions; W: the likelihood's width.
"""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .batches import check_samples, check_tensors, learned_scale, samples
from .categorical import check_pair
from .likelihoods import Gaussian, Likelihood, Location
from .mixture import GaussianMixture
from .priors import Batch, Bins, Flat, Prior

SMALL = 1024  # numbers of a batch up to which the definition is always the fastest
Reduction = Literal["mean", "sum", "none"]


class BalancedLoss(nn.Module):
    """loss(pred (N, W), target (N, D), weight=None) -> scalar, for any likelihood and prior.

    The loss is multiplied by the likelihood's unit (2 sigma^2 for a Gaussian, without gradient), so
    that it has the plain loss's scale; it can be negative, because log p_train(y) is dropped. It is
    computed in float32 or better. Give `loss.parameters()`, a learned sigma, to the optimiser.

    Arguments:
        likelihood: Gaussian, Laplace, Huber, Heteroscedastic, Categorical or Histogram.
        prior: distribution of the training labels: Batch, GaussianMixture, Bins, Classes or Flat.
        strength: factor of the balancing term; 1 is Theorem 1, 0 the plain loss.
        full_nll: return -log p_train(y | x) itself, with log p_train(y) and without the unit.
        reduction: "mean" (weighted, if there are weights), "sum", or "none" for (N,), each sample
            times its weight.

    Examples:
        >>> loss = BalancedLoss(Laplace(scale=5.0), Batch())  # a balanced L1
    """

    expects: type[Prior] = Prior

    def __init__(
        self,
        likelihood: Likelihood,
        prior: Prior,
        strength: float = 1.0,
        full_nll: bool = False,
        reduction: Reduction = "mean",
    ):
        super().__init__()
        for given, kind in ((likelihood, Likelihood), (prior, self.expects)):
            if not isinstance(given, kind):
                remedy = f"; use {kind.__name__}.fit(labels, ...)" if hasattr(kind, "fit") else ""
                names = f"a {kind.__name__}, got {type(given).__name__}{remedy}"
                raise TypeError(f"{type(self).__name__} expects {names}.")
        if not (math.isfinite(strength) and strength >= 0):
            raise ValueError(f"strength must be a finite number >= 0, got {strength}.")
        if full_nll and isinstance(prior, Flat):
            raise ValueError("full_nll needs log p_train(y): use another prior than Flat.")
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f'reduction must be "mean", "sum" or "none", got {reduction!r}.')
        check_pair(likelihood, prior)
        if likelihood.learned:
            likelihood.floor = max(likelihood.floor, prior.least_scale)
        self.likelihood, self.prior = likelihood, prior
        self.strength, self.full_nll, self.reduction = strength, full_nll, reduction
        self.warned = False

    def rows(
        self, pred: Tensor, target: Tensor, weight: Tensor | None = None, likelihood: Any = None
    ) -> Tensor:
        """Theorem 1: (N, W), (N, D) -> (N,). Samples of weight 0 are no labels of a batch prior.
        likelihood: a faster version of the loss's own.
        """
        likelihood = likelihood or self.likelihood
        labels = target if weight is None else samples(target, weight)
        log_p = likelihood.log_prob(target, pred)
        balance = self.prior.log_evidence(likelihood, pred, labels)
        if self.full_nll or self.prior.counts_labels:
            balance = balance - self.prior.log_prob(target)
        return balance - log_p if self.strength == 1 else self.strength * balance - log_p

    def forward(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        if not (isinstance(pred, Tensor) and isinstance(target, Tensor)):
            check_tensors(pred, target)
        likelihood: Any = self.likelihood
        with torch.autocast(pred.device.type, enabled=False):
            pred = pred.to(torch.promote_types(pred.dtype, torch.float32))
            pred, target = likelihood.as_rows(pred, target)
            target, weight = check_samples(pred, target, weight, self.reduction == "mean")
            learns = likelihood._parameters or likelihood._modules
            with (
                likelihood.started(pred, target, weight) if likelihood.attempts else nullcontext(),
                learned_scale(self, pred) if learns else nullcontext(),
            ):
                rows = None
                plain = type(self).rows is BalancedLoss.rows and not torch.compiler.is_compiling()
                if plain and pred.numel() > SMALL:
                    from .fast import fast_rows

                    rows = fast_rows(self, pred, target, weight)
                if rows is None:
                    rows = self.rows(pred, target, weight)
                if self.reduction == "mean":
                    loss = rows.mean() if weight is None else weight @ rows / weight.sum()
                else:
                    loss = rows if weight is None else weight * rows
                    loss = loss.sum() if self.reduction == "sum" else loss
                return loss if self.full_nll else (likelihood.unit * loss).to(loss.dtype)

    @property
    def sigma(self) -> Tensor:
        """The likelihood's scale in use, () or (D,); the parameter is `loss.likelihood.sigma`."""
        return self.likelihood.value  # pyright: ignore[reportReturnType]

    def extra_repr(self) -> str:
        """For example: Gaussian, Batch, sigma=1.0, learned=True, queue=1024, reduction=mean."""
        likelihood, prior = self.likelihood, self.prior
        shown: dict[str, Any] = {}
        if isinstance(likelihood, Location):
            scale = "auto" if likelihood.attempts else likelihood.value.tolist()
            shown = {likelihood.symbol: scale, "learned": likelihood.learned}
        settings = {"K": len(getattr(prior, "weights", ())) or None} | vars(prior) | vars(self)
        names = ("queue", "max_atoms", "K", "power", "strength", "full_nll", "reduction")
        shown |= {name: settings[name] for name in names if settings.get(name) is not None}
        kinds = [type(likelihood).__name__, type(prior).__name__]
        return ", ".join([*kinds, *(f"{name}={value}" for name, value in shown.items())])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


class BMC(BalancedLoss):
    """Batch-based Monte-Carlo: Balanced MSE that needs nothing but the batch (Eq. 3.14).

    Use it in place of `nn.MSELoss()` where labels are imbalanced. The labels of the batch stand
    for the training labels: a prediction should be nearer to its label than to the others,

        2 sigma^2 * -log [ exp(-|x_i - y_i|^2 / 2 sigma^2) / sum_j exp(-|x_i - y_j|^2 / 2 sigma^2) ]

    Arguments:
        sigma: noise of a prediction, in units of the labels: one number, one per dimension, or
            "auto" to estimate it from the first training batch. A larger sigma balances more.
        learn_sigma: make sigma a parameter; give `loss.parameters()` to the optimiser.
        queue: labels of earlier batches to keep, for small batches.
        max_atoms: that many labels, sampled in each step, next to the own one; for large batches.
        strength, full_nll, reduction: see `BalancedLoss`.

    Examples:
        >>> loss = BMC(sigma=1.0, learn_sigma=True)
        >>> groups = [{"params": model.parameters()}, {"params": loss.parameters(), "lr": 1e-2}]
        >>> optimizer = torch.optim.Adam(groups, lr=1e-3)
        >>> loss(model(x), y).backward()
    """

    def __init__(
        self,
        sigma: Any = 1.0,
        learn_sigma: bool = False,
        queue: int = 0,
        max_atoms: int | None = None,
        strength: float = 1.0,
        full_nll: bool = False,
        reduction: Reduction = "mean",
    ):
        prior = Batch(queue, max_atoms)
        super().__init__(Gaussian(sigma, learn_sigma), prior, strength, full_nll, reduction)


class GAI(BalancedLoss):
    """GMM-based Analytical Integration: Balanced MSE with a mixture of Gaussians (Eq. 3.12), in
    closed form, for labels of any dimension.

    Arguments:
        prior_or_path: a `GaussianMixture`, or the path of a file that its `save` wrote.
        sigma, learn_sigma, strength, full_nll, reduction: see `BMC`.

    Examples:
        >>> loss = GAI(GaussianMixture.fit(train_labels, components=8), sigma=1.0)
    """

    expects = GaussianMixture

    def __init__(
        self,
        prior_or_path: GaussianMixture | str | Path,
        sigma: Any = 1.0,
        learn_sigma: bool = False,
        strength: float = 1.0,
        full_nll: bool = False,
        reduction: Reduction = "mean",
    ):
        given = prior_or_path
        prior = GaussianMixture.load(given) if isinstance(given, str | Path) else given
        super().__init__(Gaussian(sigma, learn_sigma), prior, strength, full_nll, reduction)


class BNI(BalancedLoss):
    """Bin-based Numerical Integration: Balanced MSE with a label histogram (Eq. 3.16).

    Arguments:
        prior: `Bins(centers, weights)`, or `Bins.fit(train_labels, edges)`.
        sigma, learn_sigma, strength, full_nll, reduction: see `BMC`.

    Examples:
        >>> loss = BNI(Bins.fit(train_ages, edges=np.arange(-0.5, 122)), sigma=8.0)
    """

    expects = Bins

    def __init__(
        self,
        prior: Bins,
        sigma: Any = 1.0,
        learn_sigma: bool = False,
        strength: float = 1.0,
        full_nll: bool = False,
        reduction: Reduction = "mean",
    ):
        super().__init__(Gaussian(sigma, learn_sigma), prior, strength, full_nll, reduction)


def balanced_mse(
    pred: Tensor,
    target: Tensor,
    prior: Prior | None = None,
    sigma: Any = 1.0,
    weight: Tensor | None = None,
    *,
    strength: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Balanced MSE as a function: BMC without a prior, GAI with a GaussianMixture, BNI with Bins.
    A tensor sigma gets a gradient: `balanced_mse(model(x), y, sigma=sigma).backward()`.
    """
    state = {"likelihood.sigma": sigma} if isinstance(sigma, Tensor) else {}
    gaussian = Gaussian(torch.ones(sigma.shape) if state else sigma)
    prior = Batch() if prior is None else prior
    loss = BalancedLoss(gaussian, prior, strength, reduction=reduction)
    return functional_call(loss, state, (pred, target, weight))
