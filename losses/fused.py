"""Theorem 1 for a Gaussian likelihood, values and gradients in one step.

Where the prior is a list of components N(c_k, v_k) with weights w_k (v_k = 0 for single labels),

    row  = |pred - y|^2 / 2 sigma^2 + D log sigma + strength * f(pred) f    = log sum_k w_k
    N(pred; c_k, v_k + sigma^2)          (the 2 pi of both parts cancel at strength 1)

has gradients that need only averages over the share p_k of each component in the sum, with r =
pred - c_k:

    df/dpred = -sum_k p_k r_k / (v_k + sigma^2)
    df/dsigma_d = sigma_d sum_k p_k [ r_kd^2 / (v_k + sigma_d^2) - 1 ] / (v_k + sigma_d^2)

So the forward pass takes the gradients along, and the backward pass is one product: no graph, and
nothing of size rows x components is kept. `BalancedLoss.rows` says the same in plain steps, and
is the tests' oracle.

N: rows; D: label dimensions; K: components.
"""

import math

import torch
from torch import Tensor


def gaussian_rows(
    pred: Tensor,
    target: Tensor,
    sigma: Tensor,
    components: tuple[Tensor, Tensor | None, Tensor],
    strength: float,
    learned: bool,
) -> Tensor:
    """pred, target (N, D), sigma () or (D,), components c (K, D), v (K,) or None, log w (K,)
    -> (N,).

    v needs D = 1. Differentiable once, in pred and, if `learned`, in sigma.
    """
    rows, _, _ = _GaussianRows.apply(pred, target, sigma, *components, strength, learned)  # pyright: ignore[reportGeneralTypeIssues]
    return rows


class _GaussianRows(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        pred: Tensor,
        target: Tensor,
        sigma: Tensor,
        centers: Tensor,
        variances: Tensor | None,
        log_weights: Tensor,
        strength: float,
        learned: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The rows (N,), their gradients to pred (N, D) and to sigma, (N, D) or (N, 1)."""
        dims = pred.shape[-1]
        evidence = _one_dimensional if dims == 1 else _many_dimensional
        value, slope, swell = evidence(pred, sigma, centers, variances, log_weights, learned)
        r = (pred - target) / sigma
        square = r * r
        log_sigma = torch.log(sigma)
        constant = log_sigma.sum() if sigma.ndim else dims * log_sigma
        constant = constant + dims * (1 - strength) / 2 * math.log(2 * math.pi)
        rows = torch.add(square.sum(-1) / 2 + constant, value, alpha=strength)
        to_pred = torch.add(r / sigma, slope, alpha=strength)
        if not learned:
            return rows, to_pred, sigma.new_zeros(())
        own = 1 - square if sigma.ndim else dims - square.sum(-1, keepdim=True)
        return rows, to_pred, torch.add(own / sigma, swell, alpha=strength)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, to_pred, to_sigma = output
        ctx.mark_non_differentiable(to_pred, to_sigma)
        ctx.save_for_backward(to_pred, to_sigma)
        ctx.scalar = inputs[2].ndim == 0

    @staticmethod
    def backward(ctx, grad, _to_pred, _to_sigma):  # pyright: ignore[reportIncompatibleMethodOverride]
        to_pred, to_sigma = ctx.saved_tensors
        grad = grad[:, None]
        into_sigma = None
        if ctx.needs_input_grad[2]:
            into_sigma = (grad * to_sigma).sum() if ctx.scalar else (grad * to_sigma).sum(0)
        return grad * to_pred, None, into_sigma, None, None, None, None, None


def _one_dimensional(
    pred: Tensor,
    sigma: Tensor,
    centers: Tensor,
    variances: Tensor | None,
    log_weights: Tensor,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """f (N,) without its 2 pi, df/dpred (N, 1) and df/dsigma (N, 1)."""
    noise = sigma.reshape(1).square()
    total = noise if variances is None else noise + variances  # (1,) or (K,)
    r = pred - centers[:, 0]  # (N, K)
    pull = r / total
    logits = torch.addcmul(log_weights - total.log() / 2, r, pull, value=-0.5)
    share = torch.softmax(logits, -1)
    value = logits.amax(-1) - share.amax(-1).log()
    pulls = share * pull
    slope = -pulls.sum(-1, keepdim=True)
    if not learned:
        return value, slope, slope
    stretch = pulls * pull - share / total
    return value, slope, sigma * stretch.sum(-1, keepdim=True)


def _many_dimensional(
    pred: Tensor,
    sigma: Tensor,
    centers: Tensor,
    variances: Tensor | None,
    log_weights: Tensor,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for single labels, |r|^2 through one matrix product: (N, K, D) is never made."""
    middle = centers.mean(0)  # keeps |u|^2 + |c|^2 - 2 u.c from cancelling
    u, c = (pred - middle) / sigma, (centers - middle) / sigma
    logits = torch.addmm(log_weights - (c * c).sum(-1) / 2, u, c.mT)  # (N, K)
    share = torch.softmax(logits, -1)
    log_sigma = torch.log(sigma)
    log_norm = log_sigma.sum() if sigma.ndim else pred.shape[-1] * log_sigma
    value = logits.amax(-1) - share.amax(-1).log() - (u * u).sum(-1) / 2 - log_norm
    mean = share @ c
    slope = (mean - u) / sigma
    if not learned:
        return value, slope, slope
    square = u * (u - 2 * mean) + share @ (c * c) - 1
    square = square if sigma.ndim else square.sum(-1, keepdim=True)
    return value, slope, square / sigma
