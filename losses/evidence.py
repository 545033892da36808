"""The log-evidence of a Gaussian likelihood under a prior made of components, with its gradients.

For components N(c_k, v_k) with weights w_k (v_k = 0 for single labels) and r = x - c_k,

    f           = log sum_k w_k N(x; c_k, v_k + sigma^2) + D log sigma + D/2 log 2 pi
    df/dx       = -sum_k p_k r_k / (v_k + sigma^2)
    df/dsigma_d = sigma_d sum_k p_k [ r_kd^2 / (v_k + sigma_d^2) - 1 ] / (v_k + sigma_d^2)
                  + 1 / sigma_d

need only averages over the share p_k of each component. In several dimensions a component's v_k is
a matrix, and all of this holds along its axes, where it is diagonal. For a small batch the time is
the number of torch calls, so these are few, and exponentials are of base 2, which take half the
time. losses/fused.py makes a loss of it; `BalancedLoss.rows` is the tests' oracle.

N: rows; D: label dimensions; K: components.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

# x (N, D) -> f (N, 1), -sigma^2 df/dx (N, D) and, if sigma is learned, sigma df/dsigma (N, D or 1)
Evidence = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
LOG2E, LN2 = 1 / math.log(2), math.log(2)


def line(c: Tensor, v: Tensor | None, log_w: Tensor, var: float, learned: bool) -> Evidence:
    """One dimension, where rows are columns: (K, N) is made, and one number a row is (N,)."""
    middle = c.mean()  # keeps averages from losing digits
    c = c - middle
    log2_w, one, narrow = log_w[:, None] * LOG2E, torch.ones_like(c), -0.5 * LOG2E / var
    columns = [one, c, c * c] if learned else [one, c]
    part = None if v is None else var / (v + var)  # (K, 1)
    slope = log2_w if part is None else part * narrow
    if part is not None:
        log2_w = torch.add(log2_w, part.log2(), alpha=0.5)
        columns = [one, part, -part * c]
        if learned:
            square = part * part
            columns += [square, -2 * square * c, square * c * c + var * (1 - part)]
    columns = torch.cat(columns, -1).mT

    def labels(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x[:, 0] - middle
        r = x - c
        value, total, sums = _sums(torch.addcmul(log2_w, r, r, value=narrow), columns)
        drift = torch.addcdiv(x, sums[0], total, value=-1)
        if not learned:
            return value[:, None], drift[:, None], drift
        swell = x * torch.addcmul(sums[0], x, total, value=-0.5)
        swell = torch.sub(sums[1], swell, alpha=2).div_(total * var)
        return value[:, None], drift[:, None], swell[:, None]

    def mixture(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x[:, 0] - middle
        r = x - c
        value, total, sums = _sums(torch.addcmul(log2_w, r * r, slope), columns)
        drift = torch.addcmul(sums[1], x, sums[0]).div_(total)
        if not learned:
            return value[:, None], drift[:, None], drift
        _, _, a, b, rest = sums
        swell = torch.addcmul(rest, x, torch.addcmul(b, x, a)) / (total * var)
        return value[:, None], drift[:, None], swell[:, None]

    return labels if part is None else mixture


def points(c: Tensor, log_w: Tensor, var: float, learned: bool) -> Evidence:
    """Single labels in several dimensions: |r|^2 goes through one matrix product, (N, K, D) is
    never made.
    """
    middle = c.mean(0)  # keeps |x|^2 + |c|^2 - 2 x.c from cancelling
    c = c - middle
    square = c * c
    bias = torch.sub(log_w, square.sum(-1), alpha=0.5 / var)[:, None]
    # a one beside x brings the bias into the product: one pass less over (N, K)
    matrix = torch.cat([c / var, bias], -1) * LOG2E  # (K, D + 1)
    one = torch.ones_like(bias)
    columns = torch.cat([one, c, square] if learned else [one, c], -1).mT

    def evidence(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x - middle
        logits = matrix @ torch.cat([x, torch.ones_like(x[:, :1])], -1).mT  # (K, N)
        peak = logits.amax(0)
        sums = columns @ logits.sub_(peak).exp2_()  # (1 + V, N)
        value = torch.add(sums[0].log(), peak, alpha=LN2)[:, None]
        value = torch.sub(value, (x * x).sum(-1, keepdim=True), alpha=0.5 / var)
        averages = (sums[1:] / sums[0]).mT
        if not learned:
            return value, x - averages, x
        mean, square = averages.split(x.shape[-1], -1)
        return value, x - mean, torch.addcmul(square, x, x - 2 * mean) / var

    return evidence


def ellipsoids(
    c: Tensor, v: Tensor, axes: Tensor, log_w: Tensor, var: float, learned: bool, keep: bool
) -> Evidence:
    """A mixture in several dimensions, each component along its axes; or, if that is worth
    keeping, with its precision matrix: then the second product, back from the axes, is none.
    """
    part = var / (v + var)  # (K, D)
    log_w = torch.add(log_w, part.log().sum(-1), alpha=0.5)
    if keep:
        axes = axes * part[:, None] @ axes.mT  # (K, D, D)
    turn = axes.transpose(0, 1).flatten(1)  # (D, K D)
    origin = (c[:, None] @ axes).flatten()

    def evidence(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        turned = torch.addmm(-origin, x, turn).unflatten(-1, v.shape)  # (N, K, D)
        pull = turned if keep else turned * part
        other = x[:, None] - c if keep else turned
        logits = torch.sub(log_w, torch.linalg.vecdot(other, pull), alpha=0.5 / var)
        share = torch.softmax(logits, -1)
        value = logits.amax(-1, keepdim=True) - share.amax(-1, keepdim=True).log()
        if keep:
            drift = (share[:, None] @ pull)[:, 0]
            return value, drift, value
        swell = value
        if learned:
            stretch = torch.linalg.vecdot(pull, pull) / var + (1 - part).sum(-1)  # (N, K)
            swell = (share * stretch).sum(-1, keepdim=True)
        pulls = pull.mul_(share[..., None])  # in place: at this size, memory is time
        return value, pulls.flatten(1) @ turn.mT, swell

    return evidence


def _sums(logits: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """log sum_k 2^logits (N,) from (K, N), sum_k 2^(logits - peak) (N,), and such sums weighted
    with each of the columns (1 + V, K) but the first, which is ones. Changes the logits.
    """
    peak = logits.detach().amax(0)
    total, *sums = (columns @ logits.sub_(peak).exp2_()).unbind()
    return torch.add(total.log(), peak, alpha=LN2), total, sums
