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
these are few, and exponentials are of base 2, which take half the time.

N: rows; D: label dimensions; K: components.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from losses.grid import CHUNK, FEW_ROWS, Curves, is_eager, tabulate
from losses.likelihoods import Gaussian
from losses.priors import Prior

# c (K, D); v None or (K, D), along the columns of (K, D, D) if D > 1; log w (K,)
Components = tuple[Tensor, Tensor | None, Tensor | None, Tensor]
# x (N, D) -> f (N, 1), -sigma^2 df/dx (N, D) and, if sigma is learned, sigma df/dsigma (N, D or 1)
Evidence = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
LOG2E, LN2 = 1 / math.log(2), math.log(2)


class Kept:
    """The last result of a function of some tensors, as long as these are what they were, and the
    curves that were drawn of it.
    """

    def __init__(self):
        self.state, self.tensors, self.results, self.curves = [], (), [], []

    def get(
        self, tensors: tuple[Tensor, ...], other: tuple, make: Callable[[], Evidence]
    ) -> Evidence:
        state = [*other, *(id(t) for t in tensors), *(t._version for t in tensors)]
        if state != self.state:  # the tensors are held, so that no other gets their id
            self.state, self.tensors, self.results, self.curves = state, tensors, [make()], []
        return self.results[0]

    def __reduce__(self):
        return Kept, ()  # a copy, and what is written to a file, starts empty


def gaussian_mean(
    pred: Tensor,
    target: Tensor,
    gaussian: Gaussian,
    prior: Prior,
    strength: float,
    weight: Tensor | None,
    kept: Kept,
) -> Tensor:
    """2 sigma^2 (detached) times the mean of the rows, weighted by (N,) if given.

    pred, target (N, D); one sigma, unless the prior is of single labels. Differentiable once, in
    pred and in a learned sigma. What depends only on a fixed sigma and a fixed prior is `kept`.
    """
    x, raw, learned = pred.detach(), getattr(gaussian, gaussian.symbol), gaussian.learned
    eager = is_eager(raw) and is_eager(pred)
    many = eager and x.shape[-1] == 1 and len(x) > FEW_ROWS
    simple = eager and raw.ndim == 0 and raw.device.type == "cpu"
    sigma = raw if simple else gaussian.noise(pred)
    s: Any = max(raw.item(), gaussian.floor) if simple else sigma.detach()  # numbers are faster
    fixed = prior.fixed if eager and not learned and not raw.is_inference() else ()

    def make() -> Evidence:
        c, v, axes, log_w = prior.components(target)
        if many:  # for the grid
            c, v, log_w = c.double(), v if v is None else v.double(), log_w.double()
        if not simple:
            c, v = c / s, v if v is None else v / s**2
        var = s * s if simple else 1.0
        if x.shape[-1] == 1:
            return _line(c, v, log_w, var, learned)
        if v is None or axes is None:
            return _points(c, log_w, var, learned)
        return _ellipsoids(c, v, axes, log_w, var, learned, bool(fixed))

    if fixed:
        key = (x.shape[-1], x.dtype, x.device, many, torch.is_inference_mode_enabled())
        evidence = kept.get((raw, *fixed), key, make)
    else:
        evidence = make()
    curves = kept.curves if fixed else None
    if simple:
        parts = _loss(evidence, x, target, s, strength, weight, learned, many, curves)
        return _attach(pred, raw, *parts)
    loss, to_pred, to_sigma = _loss(
        evidence, x / s, target / s, 1.0, strength, weight, learned, many, curves, s.ndim > 0
    )
    if strength != 1:
        log_sigma = s.log().sum() if s.ndim else x.shape[-1] * s.log()
        loss = loss + 2 * (1 - strength) * log_sigma
    var = s.square().mean()  # back to the labels' own unit
    to_sigma = None if to_sigma is None else to_sigma * (var / s)
    return _attach(pred, sigma, loss * var, to_pred * (var / s), to_sigma)


def _loss(
    evidence: Evidence,
    x: Tensor,
    target: Tensor,
    s: float,
    strength: float,
    weight: Tensor | None,
    learned: bool,
    many: bool,
    curves: list[Curves] | None,
    per_dimension: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The loss () and its gradients to x (N, D) and to sigma, () or, `per_dimension`, (D,)."""
    dims, var = x.shape[-1], s * s

    def part(evidence: Evidence, x: Tensor, target: Tensor, portion: Any) -> list[Tensor]:
        """What rows add; each counts with its portion, (N, 1) or one number."""
        value, drift, swell = evidence(x)
        r = x - target
        if strength != 1:
            value, drift, swell = strength * value, strength * drift, strength * swell
        to_pred = (r - drift).mul_(2 * portion)
        if dims == 1 and not learned:
            rows = torch.addcmul(value, r, r, value=0.5 / var)
            return [_mean(rows, portion) * (2 * var), to_pred]
        square = r * r
        energy = square if dims == 1 else square.sum(-1, keepdim=True)
        loss = _mean(torch.add(value, energy, alpha=0.5 / var), portion) * (2 * var)
        if not learned:
            return [loss, to_pred]
        if per_dimension:
            rows = torch.sub(swell, square, alpha=1 / var)  # (N, D)
            return [loss, to_pred, (rows * portion).sum(0) * (2 * s)]
        rows = torch.sub(swell.sum(-1, keepdim=True), energy, alpha=1 / var)
        return [loss, to_pred, _mean(rows, portion) * (2 * s)]

    portion = 1 / len(x) if weight is None else (weight / weight.sum()).to(x)[:, None]
    if many:
        evidence, chunk = _by_grid(evidence, x, var, learned, curves)
        rows = [slice(start, start + chunk) for start in range(0, len(x), chunk)]
        own = (portion if weight is None else portion[r] for r in rows)  # pyright: ignore
        parts = [part(evidence, x[r], target[r], p) for r, p in zip(rows, own, strict=True)]
        losses, to_preds, *to_sigmas = zip(*parts, strict=True)
        parts = [sum(losses), torch.cat(to_preds), *(sum(each) for each in to_sigmas)]
    else:
        parts = part(evidence, x, target, portion)
    loss, to_pred, to_sigma = parts[0], parts[1], parts[2] if learned else None
    if strength != 1:
        left = (1 - strength) * 2 * var  # of what cancels otherwise
        loss = loss + left * dims * math.log(s * math.sqrt(2 * math.pi))
        if to_sigma is not None:
            to_sigma = to_sigma + left / s * (1 if per_dimension else dims)
    return loss, to_pred, to_sigma


def _mean(rows: Tensor, portion: Tensor | float) -> Tensor:
    return rows.sum() * portion if isinstance(portion, float) else (rows * portion).sum()


def _by_grid(
    evidence: Evidence, x: Tensor, var: float, learned: bool, kept: list[Curves] | None
) -> tuple[Evidence, int]:
    """The evidence (in float64) for very many rows in one dimension, read off a grid where one is
    fine enough, and for how many rows at a time.
    """

    def curves(nodes: Tensor) -> Tensor:
        value, _, swell = evidence(nodes)
        return torch.cat([value, swell], -1).mT if learned else value.mT

    def exact(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, drift, swell = evidence(x.double())
        return value.to(x), drift.to(x), swell.to(x)

    table = tabulate(curves, x[:, 0], kept=kept)
    if table is None:
        return exact, FEW_ROWS

    def read(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, slope, others = table.read(x[:, 0])
        drift = slope.mul_(-var)[:, None]
        return value[:, None], drift, others[0][:, None] if others else drift

    return read, CHUNK


def _line(c: Tensor, v: Tensor | None, log_w: Tensor, var: float, learned: bool) -> Evidence:
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


def _points(c: Tensor, log_w: Tensor, var: float, learned: bool) -> Evidence:
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


def _ellipsoids(
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
