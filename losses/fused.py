"""Theorem 1 for a Gaussian likelihood, the mean over the rows and its gradients in one step.

Where the prior is a list of components N(c_k, v_k) with weights w_k (v_k = 0 for single labels),
all lengths are in units of sigma, u = (pred - y) / sigma, and q_k^2 = sigma^2 / (v_k + sigma^2),

    row = |u|^2 / 2 + strength * f    (up to what strength = 1 cancels)
    f   = log sum_k w_k q_k exp(-|r_k|^2 / 2),  r_k = q_k (pred - c_k) / sigma

has gradients that need only averages over the share p_k of each component in f:

    sigma df/dpred    = -sum_k p_k q_k r_k
    sigma df/dsigma_d =  sum_k p_k q_k^2 (r_kd^2 - 1) + 1

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
from losses.likelihoods import Gaussian


def gaussian_mean(
    pred: Tensor,
    target: Tensor,
    gaussian: Gaussian,
    components: tuple[Tensor, Tensor | None, Tensor],
    strength: float,
    weight: Tensor | None,
) -> Tensor:
    """2 sigma^2 (detached) times the mean of the rows, weighted by (N,) if given.

    pred, target (N, D); components c (K, D), v (K,) or None, log w (K,); v needs D = 1.
    Differentiable once, in pred and in a learned sigma.
    """
    x, dims = pred.detach(), pred.shape[-1]
    sigma, s = _sigma(gaussian, pred)
    one_sigma = not (isinstance(s, Tensor) and s.ndim)
    evidence = _one_dimensional if dims == 1 else _many_dimensional
    value, drift, swell = evidence(x, s, *components, gaussian.learned)
    u = (x - target) / s
    energy = u * u if dims == 1 else (u * u).sum(-1, keepdim=True)
    rows = torch.add(value if strength == 1 else strength * value, energy, alpha=0.5)  # (N, 1)
    if strength != 1:
        log_sigma = dims * _log(s) if one_sigma else _log(s).sum()
        rows = rows + (1 - strength) * (log_sigma + dims / 2 * math.log(2 * math.pi))

    unit = 2 * (s * s if one_sigma else (s * s).mean())
    portion = 1 / len(x) if weight is None else weight.to(x)[:, None] / weight.to(x).sum()
    loss = rows.mean() * unit if weight is None else (portion * rows).sum() * unit
    scale = portion * (unit / s)
    to_pred = torch.sub(u, drift, alpha=strength) * scale
    to_sigma = None
    if gaussian.learned:
        own = -energy if one_sigma else -u * u
        to_sigma = (torch.add(own, swell, alpha=strength) * scale).sum(0)
        to_sigma = to_sigma[0] if one_sigma else to_sigma
        if strength != 1:
            to_sigma = to_sigma + (1 - strength) * (dims if one_sigma else 1) * unit / s
    return _attach(loss, pred, to_pred, sigma, to_sigma)


def _sigma(gaussian: Gaussian, pred: Tensor) -> tuple[Tensor, Any]:
    """The tensor that sigma's gradient goes to, and sigma as a number if Python can look at it at
    no cost, because its arithmetic on one number is faster than torch's.
    """
    raw = gaussian.get_buffer("sigma") if not gaussian.learned else gaussian.get_parameter("sigma")
    if raw.ndim == 0 and raw.device.type == "cpu" and is_eager(raw) and is_eager(pred):
        return raw, max(raw.item(), gaussian.floor)
    sigma = gaussian.noise(pred)
    return sigma, sigma.detach()


def _one_dimensional(
    x: Tensor, sigma: Any, c: Tensor, v: Tensor | None, log_w: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """f, -sigma df/dx and sigma df/dsigma, each (N, 1)."""
    r = x / sigma - c.mT / sigma  # (N, K)
    q = None if v is None else sigma * (v + sigma * sigma).rsqrt()  # (K,)
    if q is not None:
        r, log_w = r * q, log_w + q.log()
    logits = torch.addcmul(log_w, r, r, value=-0.5)
    share = torch.softmax(logits, -1)
    value = logits.amax(-1, keepdim=True) - share.amax(-1, keepdim=True).log()
    pulls = share * r
    drift = pulls.sum(-1, keepdim=True) if q is None else pulls @ q[:, None]
    if not learned:
        return value, drift, drift
    if q is None:
        return value, drift, (pulls * r).sum(-1, keepdim=True)
    return value, drift, torch.addcmul(-share, pulls, r) @ (q * q)[:, None] + 1


def _many_dimensional(
    x: Tensor, sigma: Any, c: Tensor, v: Tensor | None, log_w: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for single labels, (N, 1), (N, D), and (N, D) or (N, 1) for one sigma: |r|^2 goes
    through one matrix product, (N, K, D) is never made.
    """
    middle = c.mean(0)  # keeps |u|^2 + |c|^2 - 2 u.c from cancelling
    u, c = (x - middle) / sigma, (c - middle) / sigma
    logits = torch.addmm(log_w - (c * c).sum(-1) / 2, u, c.mT)  # (N, K)
    share = torch.softmax(logits, -1)
    peak = logits.amax(-1, keepdim=True) - share.amax(-1, keepdim=True).log()
    value = peak - (u * u).sum(-1, keepdim=True) / 2
    mean = share @ c
    drift = u - mean
    if not learned:
        return value, drift, drift
    swell = u * (u - 2 * mean) + share @ (c * c)
    if isinstance(sigma, Tensor) and sigma.ndim:
        return value, drift, swell
    return value, drift, swell.sum(-1, keepdim=True)


def _log(x: Any) -> Any:
    return torch.log(x) if isinstance(x, Tensor) else math.log(x)


def _attach(
    loss: Tensor, pred: Tensor, to_pred: Tensor, sigma: Tensor, to_sigma: Tensor | None
) -> Tensor:
    """loss () with the given gradients: to_pred (N, D); to_sigma of sigma's shape, or None."""
    if is_eager(pred) and is_eager(sigma):
        return _Attach.apply(loss, pred, to_pred, sigma, to_sigma)
    # torch.func and torch.compile see plain steps: what is added is zero and has the gradient
    loss = loss + (to_pred * (pred - pred.detach())).sum()
    return loss if to_sigma is None else loss + (to_sigma * (sigma - sigma.detach())).sum()


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, pred, to_pred, sigma, to_sigma):
        ctx.save_for_backward(to_pred, to_sigma)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        to_pred, to_sigma = ctx.saved_tensors
        into_pred = grad * to_pred if ctx.needs_input_grad[1] else None
        into_sigma = grad * to_sigma if ctx.needs_input_grad[3] else None
        return None, into_pred, None, into_sigma, None
