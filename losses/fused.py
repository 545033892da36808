"""Theorem 1 for a Gaussian likelihood, the mean over the rows and its gradients in one step.

Where the prior is a list of components N(c_k, v_k) with weights w_k (v_k = 0 for single labels),

    row = |pred - y|^2 / 2 sigma^2 + strength * f    (up to what cancels at strength 1)
    f   = log sum_k w_k N(pred; c_k, v_k + sigma^2) + D log sigma + D/2 log 2 pi

has gradients that need only averages over the share p_k of each component, with r = pred - c_k:

    df/dpred    = -sum_k p_k r_k / (v_k + sigma^2)
    df/dsigma_d = sigma_d sum_k p_k [ r_kd^2 / (v_k + sigma_d^2) - 1 ] / (v_k + sigma_d^2)
                  + 1 / sigma_d

So they are computed along with the value, and the backward pass is one product: no graph, and
nothing of size rows x components is kept. In several dimensions a component's v_k is a matrix,
and all of this holds along its axes, where it is diagonal. `BalancedLoss.rows` says the same in
plain steps and is the tests' oracle. For a small batch the time is the number of torch calls, so
these are few.

N: rows; D: label dimensions; K: components.
"""

import math

import torch
from torch import Tensor

from losses.grid import is_eager
from losses.likelihoods import Gaussian

# c (K, D); v None or (K, D), along the columns of (K, D, D) if D > 1; log w (K,)
Components = tuple[Tensor, Tensor | None, Tensor | None, Tensor]


def gaussian_mean(
    pred: Tensor,
    target: Tensor,
    gaussian: Gaussian,
    components: Components,
    strength: float,
    weight: Tensor | None,
) -> Tensor:
    """2 sigma^2 (detached) times the mean of the rows, weighted by (N,) if given.

    pred, target (N, D); one sigma, unless v is None. Differentiable once, in pred and in a
    learned sigma.
    """
    x, raw = pred.detach(), getattr(gaussian, gaussian.symbol)
    if raw.ndim == 0 and raw.device.type == "cpu" and is_eager(raw) and is_eager(pred):
        s = max(raw.item(), gaussian.floor)  # Python is faster on one number
        parts = _loss(x, target, s, components, strength, weight, gaussian.learned)
        return _attach(pred, raw, *parts)
    sigma = gaussian.noise(pred)
    s = sigma.detach()
    c, v, axes, log_w = components
    scaled = c / s, v if v is None else v / s.square(), axes, log_w
    loss, to_pred, to_sigma = _loss(
        x / s, target / s, 1.0, scaled, strength, weight, gaussian.learned, s.ndim > 0
    )
    if strength != 1:
        log_sigma = s.log().sum() if s.ndim else x.shape[-1] * s.log()
        loss = loss + 2 * (1 - strength) * log_sigma
    var = s.square().mean()  # back to the labels' own unit
    to_sigma = None if to_sigma is None else to_sigma * (var / s)
    return _attach(pred, sigma, loss * var, to_pred * (var / s), to_sigma)


def _loss(
    x: Tensor,
    target: Tensor,
    s: float,
    components: Components,
    strength: float,
    weight: Tensor | None,
    learned: bool,
    per_dimension: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The loss () and its gradients to x (N, D) and to sigma, () or, `per_dimension`, (D,)."""
    dims, var = x.shape[-1], s * s
    c, v, axes, log_w = components
    if dims == 1:
        value, drift, swell = _one_dimensional(x, var, c, v, log_w, learned)
    elif v is None or axes is None:
        value, drift, swell = _labels(x, var, c, log_w, learned)
    else:
        value, drift, swell = _ellipsoids(x, var, c, v, axes, log_w, learned)
    r = x - target
    square = r * r
    energy = square if dims == 1 else square.sum(-1, keepdim=True)
    rows = torch.add(value if strength == 1 else strength * value, energy, alpha=0.5 / var)
    mean, portion = rows.mean(), 1 / len(x)
    if weight is not None:
        portion = (weight / weight.sum()).to(x)[:, None]
        mean = (portion * rows).sum()
    loss = mean * (2 * var)
    to_pred = torch.sub(r, drift, alpha=strength) * (2 * portion)
    to_sigma = None
    if learned:
        own = square if per_dimension else energy  # (N, D) or (N, 1)
        swell = swell if per_dimension else swell.sum(-1, keepdim=True)
        each = torch.sub(strength * swell, own, alpha=1 / var) * portion
        to_sigma = (each.sum(0) if per_dimension else each.sum()) * (2 * s)
    if strength != 1:
        left = (1 - strength) * 2 * var  # of what cancels otherwise
        loss = loss + left * dims * math.log(s * math.sqrt(2 * math.pi))
        if to_sigma is not None:
            to_sigma = to_sigma + left / s * (1 if per_dimension else dims)
    return loss, to_pred, to_sigma


def _one_dimensional(
    x: Tensor, var: float, c: Tensor, v: Tensor | None, log_w: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """f, -sigma^2 df/dx and sigma df/dsigma, each (N, 1)."""
    if v is None:
        middle = c.mean(0)  # keeps the averages below from losing digits
        x, c = x - middle, c - middle
    r = pull = x - c.mT  # (N, K)
    part = None if v is None else var / (v[:, 0] + var)  # (K,)
    if part is not None:
        pull, log_w = r * part, torch.add(log_w, part.log(), alpha=0.5)
    logits = torch.addcmul(log_w, r, pull, value=-0.5 / var)
    share = torch.softmax(logits, -1)
    value = logits.amax(-1, keepdim=True) - share.amax(-1, keepdim=True).log()
    if part is None:  # single labels: two averages, no more passes over (N, K)
        averages = _average(share, torch.cat([c, c * c], -1) if learned else c)
        mean, square = averages[:, :1], averages[:, -1:]
        return value, x - mean, (x * (x - 2 * mean) + square) / var if learned else mean
    pulls = share * pull
    drift = pulls.sum(-1, keepdim=True)
    if not learned:
        return value, drift, drift
    swell = (pulls * pull).sum(-1, keepdim=True) / var
    return value, drift, swell + _average(share, (1 - part)[:, None])


def _labels(
    x: Tensor, var: float, c: Tensor, log_w: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, (N, 1), (N, D), (N, D), for single labels: |r|^2 goes through one matrix product,
    (N, K, D) is never made.
    """
    middle = c.mean(0)  # keeps |x|^2 + |c|^2 - 2 x.c from cancelling
    x, c = x - middle, c - middle
    square = c * c
    bias = torch.sub(log_w, square.sum(-1), alpha=0.5 / var)[:, None]
    one = torch.ones_like(x[:, :1])  # brings the bias into the product: one pass over (N, K)
    logits = torch.cat([x / var, one], -1) @ torch.cat([c, bias], -1).mT
    share = torch.softmax(logits, -1)
    peak = logits.amax(-1, keepdim=True) - share.amax(-1, keepdim=True).log()
    value = torch.sub(peak, (x * x).sum(-1, keepdim=True), alpha=0.5 / var)
    mean = _average(share, c)
    if not learned:
        return value, x - mean, mean
    return value, x - mean, (x * (x - 2 * mean) + _average(share, square)) / var


def _ellipsoids(
    x: Tensor, var: float, c: Tensor, v: Tensor, axes: Tensor, log_w: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, (N, 1), (N, D), (N, 1), for a mixture: all axes are one matrix, there and back."""
    turn = axes.transpose(0, 1).flatten(1)  # (D, K D)
    origin = (c[:, None] @ axes).flatten()
    r = torch.addmm(-origin, x, turn).unflatten(-1, v.shape)  # (N, K, D)
    part = var / (v + var)  # (K, D)
    pull = r * part
    log_w = torch.add(log_w, part.log().sum(-1), alpha=0.5)
    logits = torch.sub(log_w, torch.linalg.vecdot(r, pull), alpha=0.5 / var)
    share = torch.softmax(logits, -1)
    value = logits.amax(-1, keepdim=True) - share.amax(-1, keepdim=True).log()
    swell = value
    if learned:
        stretch = torch.linalg.vecdot(pull, pull) / var + (1 - part).sum(-1)  # (N, K)
        swell = (share * stretch).sum(-1, keepdim=True)
    pulls = pull.mul_(share[..., None])  # in place: at this size, memory is time
    return value, pulls.flatten(1) @ turn.mT, swell


def _average(share: Tensor, values: Tensor) -> Tensor:
    """share @ values, (N, K) @ (K, D): transposed it is several times faster for small D."""
    return (values.mT @ share.mT).mT


def _attach(
    pred: Tensor, sigma: Tensor, loss: Tensor, to_pred: Tensor, to_sigma: Tensor | None
) -> Tensor:
    """The loss () with the given gradients to pred and, unless None, to sigma."""
    if is_eager(pred) and is_eager(sigma):
        return _Attach.apply(pred, sigma, loss, to_pred, to_sigma)
    # torch.func and torch.compile see plain steps: what is added is zero and has the gradient
    loss = loss + (to_pred * (pred - pred.detach())).sum()
    return loss if to_sigma is None else loss + (to_sigma * (sigma - sigma.detach())).sum()


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx, pred, sigma, loss, to_pred, to_sigma):
        ctx.save_for_backward(to_pred, to_sigma)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        to_pred, to_sigma = ctx.saved_tensors
        into_pred = grad * to_pred if ctx.needs_input_grad[0] else None
        into_sigma = grad * to_sigma if ctx.needs_input_grad[1] else None
        return into_pred, into_sigma, None, None, None
