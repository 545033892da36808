"""Theorem 1 for a Gaussian likelihood, values and gradients in one step.

Where the prior is a list of components N(c_k, v_k) with weights w_k (v_k = 0 for single labels),

    row = |pred - y|^2 / 2 sigma^2 + D log sigma + strength * f(pred)
    f   = log sum_k w_k N(pred; c_k, v_k + sigma^2)    (their 2 pi cancel at strength 1)

has gradients that need only averages over the share p_k of each component, with r = pred - c_k:

    df/dpred    = -sum_k p_k r_k / (v_k + sigma^2)
    df/dsigma_d = sigma_d sum_k p_k [ r_kd^2 / (v_k + sigma_d^2) - 1 ] / (v_k + sigma_d^2)

So they are computed along with the value, and the backward pass is one product: no graph, and
nothing of size rows x components is kept. `BalancedLoss.rows` says the same in plain steps and is
the tests' oracle.

N: rows; D: label dimensions; K: components.
"""

import math
from typing import Any

import torch
from torch import Tensor

from losses.grid import is_eager


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
    x, s = pred.detach(), sigma.detach()
    dims = x.shape[-1]
    log_sigma = torch.log(s).sum() if s.ndim else dims * _log(s)
    if s.ndim == 0 and s.device.type == "cpu" and is_eager(pred):
        s = s.item()  # Python's arithmetic on one number is faster than torch's
    evidence: Any = _labels if components[1] is None else _mixture
    value, slope, swell = evidence(x, s, *components, learned)
    r = x - target
    pull = r / s**2
    square = r * pull  # (N, D)
    energy = square[:, 0] if dims == 1 else square.sum(-1)
    constant = log_sigma + dims * (1 - strength) / 2 * math.log(2 * math.pi)
    rows = torch.add(energy / 2 + constant, value, alpha=strength)
    to_pred = torch.add(pull, slope, alpha=strength)
    to_sigma = None
    if learned:
        own = (1 - square) if sigma.ndim else dims - energy[:, None]
        to_sigma = torch.add(own / s, swell, alpha=strength)
    return _attach(rows, pred, to_pred, sigma, to_sigma)


def _labels(
    x: Tensor, sigma: Any, c: Tensor, v: Tensor | None, log_w: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Single labels: f (N,) without its 2 pi, df/dx (N, D), df/dsigma (N, D) or (N, 1)."""
    dims = x.shape[-1]
    one_sigma = not isinstance(sigma, Tensor) or not sigma.ndim
    middle = c.mean(0)  # keeps differences of large labels from cancelling
    u, c = (x - middle) / sigma, (c - middle) / sigma
    if dims == 1:
        r = u - c[:, 0]  # (N, K)
        logits = torch.addcmul(log_w, r, r, value=-0.5)
    else:  # |r|^2 through one matrix product: (N, K, D) is never made
        r = None
        one = torch.ones_like(u[:, :1])
        half = (log_w - (c * c).sum(-1) / 2)[:, None]
        logits = torch.cat([u, one], -1) @ torch.cat([c, half], -1).mT  # short of -|u|^2 / 2
    share = torch.softmax(logits, -1)
    log_norm = dims * _log(sigma) if one_sigma else _log(sigma).sum()
    value = logits.amax(-1) - share.amax(-1).log() - log_norm
    if r is None:
        value = value - (u * u).sum(-1) / 2
    mean = share @ c
    slope = (mean - u) / sigma
    if not learned:
        return value, slope, slope
    if r is not None:
        square = (share * r * r).sum(-1, keepdim=True) - 1
    else:
        square = u * (u - 2 * mean) + share @ (c * c) - 1
        square = square.sum(-1, keepdim=True) if one_sigma else square
    return value, slope, square / sigma


def _mixture(
    x: Tensor, sigma: Any, c: Tensor, v: Tensor, log_w: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Components with a variance, in one dimension: f (N,), df/dx (N, 1), df/dsigma (N, 1)."""
    total = v + sigma**2  # (K,)
    r = x - c[:, 0]  # (N, K)
    pull = r / total
    logits = torch.addcmul(log_w - total.log() / 2, r, pull, value=-0.5)
    share = torch.softmax(logits, -1)
    value = logits.amax(-1) - share.amax(-1).log()
    pulls = share * pull
    slope = -pulls.sum(-1, keepdim=True)
    if not learned:
        return value, slope, slope
    stretch = torch.addcmul(-share / total, pulls, pull)
    return value, slope, sigma * stretch.sum(-1, keepdim=True)


def _log(x: Any) -> Any:
    return math.log(x) if isinstance(x, float) else torch.log(x)


def _attach(
    rows: Tensor, pred: Tensor, to_pred: Tensor, sigma: Tensor, to_sigma: Tensor | None
) -> Tensor:
    """rows (N,) with the given gradients: to_pred (N, D); to_sigma (N, D), (N, 1), or None."""
    if is_eager(pred):
        return _Attach.apply(rows, pred, to_pred, sigma, to_sigma)
    # torch.func and torch.compile see plain steps: what is added is zero and has the gradient
    rows = rows + (to_pred * (pred - pred.detach())).sum(-1)
    return rows if to_sigma is None else rows + (to_sigma * (sigma - sigma.detach())).sum(-1)


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, pred, to_pred, sigma, to_sigma):
        ctx.save_for_backward(to_pred, to_sigma)
        ctx.scalar = sigma.ndim == 0
        return rows

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        to_pred, to_sigma = ctx.saved_tensors
        grad = grad[:, None]
        into_sigma = None
        if ctx.needs_input_grad[3]:
            into_sigma = grad * to_sigma
            into_sigma = into_sigma.sum() if ctx.scalar else into_sigma.sum(0)
        return None, grad * to_pred, None, into_sigma, None
