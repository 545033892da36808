"""The log-evidence of a Gaussian likelihood under a prior made of components, with its gradients.

For components N(c_k, v_k) with weights w_k (v_k = 0 for single labels) and r = x - c_k,

    f           = log sum_k w_k N(x; c_k, v_k + sigma^2) + D log sigma + D/2 log 2 pi
    df/dx       = -sum_k p_k r_k / (v_k + sigma^2)
    df/dsigma_d = sigma_d sum_k p_k [ r_kd^2 / (v_k + sigma_d^2) - 1 ] / (v_k + sigma_d^2)
                  + 1 / sigma_d

need only averages over the share p_k of each component. In several dimensions a component's v_k is
a matrix, and all of this holds along its axes, where it is diagonal. For a small batch the time is
the number of torch calls, so these are few, and exponentials are of base 2, which take half the
time. fused.py makes a loss of it; `BalancedLoss.rows` is the tests' oracle.

N: rows; D: label dimensions; K: components.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..batches import is_readable
from ..likelihoods import double

# x (N, D) -> f (N, 1), -sigma^2 df/dx (N, D) and, if sigma is learned, sigma df/dsigma (N, D or 1)
Evidence = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
LOG2E, LN2 = 1 / math.log(2), math.log(2)
CANCELS = 32.0  # squared distances, in sigma^2, whose float32 rounding a gradient does not notice


def line(c: Tensor, v: Tensor | None, log_w: Tensor, var: float, learned: bool) -> Evidence:
    """One dimension, where rows are columns: (K, N) is made, and one number a row is (N,)."""
    log2_w, narrow = log_w[:, None] * LOG2E, -0.5 * LOG2E / var

    def labels(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r = x[:, 0] - c
        if not learned:
            value, share, total = _shares(torch.addcmul(log2_w, r, r, value=narrow))
            residual = r.mul_(share).sum(0).div_(total)[:, None]
            return value, residual, residual
        square = r * r
        value, share, total = _shares(torch.add(log2_w, square, alpha=narrow))
        residual = r.mul_(share).sum(0).div_(total)[:, None]
        return value, residual, square.mul_(share).sum(0).div_(total * var)[:, None]

    if v is None:
        return labels
    part = var / (v + var)  # (K, 1)
    log2_w = torch.add(log2_w, part.log2(), alpha=0.5)
    rest = 1 - part if learned else part

    def mixture(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r = x[:, 0] - c
        pull = r * part
        value, share, total = _shares(torch.addcmul(log2_w, r, pull, value=narrow))
        square = torch.addcmul(rest, pull, pull, value=1 / var) if learned else None
        residual = pull.mul_(share).sum(0).div_(total)[:, None]
        if square is None:
            return value, residual, residual
        return value, residual, square.mul_(share).sum(0).div_(total)[:, None]

    return mixture


def points(c: Tensor, log_w: Tensor, var: float, learned: bool, near: bool = False) -> Evidence:
    """Single labels: |r|^2 = |x|^2 + |c|^2 - 2 x.c goes through one matrix product, (N, K, D) is
    never made. In float64 where that cancels, or may and cannot be seen; `near`: it does not.
    """
    dtype, middle, labels = c.dtype, c.mean(0), c
    c = labels - middle
    square = c * c
    length = square.sum(-1)
    seen = near or (is_readable(c) and length.max().item() <= CANCELS * c.shape[-1] * var)
    if not seen:
        c = double(labels) - double(middle)
        square = c * c
        length = square.sum(-1)
    bias = torch.sub(log_w.to(c), length, alpha=0.5 / var)[:, None]
    # a one beside x brings the bias into the product: one pass less over (N, K)
    matrix = torch.cat([c / var, bias], -1) * LOG2E  # (K, D + 1)
    one = torch.ones_like(bias)
    columns = torch.cat([one, c, square] if learned else [one, c], -1).mT

    def evidence(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x.to(c.dtype) - middle
        logits = matrix @ torch.cat([x, torch.ones_like(x[:, :1])], -1).mT  # (K, N)
        peak = logits.amax(0)
        sums = columns @ logits.sub_(peak).exp2_()  # (1 + V, N)
        value = torch.add(sums[0].log(), peak, alpha=LN2)[:, None]
        value = torch.sub(value, (x * x).sum(-1, keepdim=True), alpha=0.5 / var).to(dtype)
        averages = (sums[1:] / sums[0]).mT
        if not learned:
            residual = (x - averages).to(dtype)
            return value, residual, residual
        mean, square = averages.split(x.shape[-1], -1)
        sigma_slope = torch.addcmul(square, x, x - 2 * mean) / var
        return value, (x - mean).to(dtype), sigma_slope.to(dtype)

    return evidence


class Axes(NamedTuple):
    """K covariances along their axes, and the centers c (K, D) in these coordinates."""

    c: Tensor  # about their middle
    middle: Tensor
    v: Tensor  # (K, D) variances
    axes: Tensor  # (K, D, D), columns
    rotation: Tensor  # (D, K D), to all axes at once
    origin: Tensor  # (K D,), the centers there

    def divided(self, s: Tensor) -> "Axes":
        """In units of s ()."""
        c, middle, origin = self.c / s, self.middle / s, self.origin / s
        return Axes(c, middle, self.v / s**2, self.axes, self.rotation, origin)


def diagonal(c: Tensor, covariances: Tensor, var: float) -> Axes:
    """In float64 where the centers are far apart, for a sigma^2 of `var` and more."""
    middle, v = c.mean(0), covariances.diagonal(dim1=-2, dim2=-1)
    far = (c - middle).square().sum(-1).max() > CANCELS * c.shape[-1] * (v.min() + var)
    if not is_readable(c) or far.item():
        c, covariances, middle = double(c), double(covariances), double(middle)
    c = c - middle
    v, axes = torch.linalg.eigh(covariances)
    return Axes(c, middle, v, axes, *_rotated(c, axes))


def _rotated(c: Tensor, axes: Tensor) -> tuple[Tensor, Tensor]:
    return axes.transpose(0, 1).flatten(1), (c[:, None] @ axes).flatten()


def ellipsoids(given: Axes, log_w: Tensor, var: float, learned: bool, precise: bool) -> Evidence:
    """A mixture in several dimensions. `precise`: by precision matrices, which are worth making
    for several steps; they save the second product, back from the axes.
    """
    c, middle, v, axes, rotation, origin = given
    dtype, part = log_w.dtype, var / (v + var)  # (K, D)
    log_w = torch.add(log_w, part.log().sum(-1), alpha=0.5)
    if precise:
        rotation, origin = _rotated(c, axes * part[:, None] @ axes.mT)

    def evidence(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x.to(c.dtype) - middle
        rotated = torch.addmm(-origin, x, rotation).unflatten(-1, v.shape)  # (N, K, D)
        pull = rotated if precise else rotated * part
        other = x[:, None] - c if precise else rotated
        logits = torch.sub(log_w, other.mul_(pull).sum(-1), alpha=0.5 / var)
        share = torch.softmax(logits, -1)
        value = (logits.amax(-1, keepdim=True) - share.amax(-1, keepdim=True).log()).to(dtype)
        if precise:
            residual = (share[:, None] @ pull)[:, 0]
            return value, residual.to(dtype), value
        sigma_slope = value
        if learned:
            square = other.copy_(pull).mul_(pull).sum(-1)  # in place: memory is time at this size
            stretch = square / var + (1 - part).sum(-1)  # (N, K)
            sigma_slope = (share * stretch).sum(-1, keepdim=True).to(dtype)
        pulls = pull.mul_(share[..., None])
        return value, (pulls.flatten(1) @ rotation.mT).to(dtype), sigma_slope

    return evidence


def _shares(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log sum_k 2^logits (N, 1) from (K, N), each component's share (K, N), up to the factor that
    makes them sum to one, and that factor's inverse (N,). Changes the logits.
    """
    peak = logits.amax(0)
    share = logits.sub_(peak).exp2_()
    total = share.sum(0)
    return torch.add(total.log(), peak, alpha=LN2)[:, None], share, total
