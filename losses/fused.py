"""Theorem 1 for a Gaussian likelihood, the mean over the rows and its gradients in one step.

With the log-evidence f of losses/evidence.py,

    row = |pred - y|^2 / 2 sigma^2 + strength * f    (up to what cancels at strength 1)

Its gradients are computed along with the value, and the backward pass is one product: no graph,
and nothing of size rows x components is kept.

N: rows; D: label dimensions.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from losses.evidence import Evidence, ellipsoids, line, points
from losses.grid import CHUNK, FEW_ROWS, Curves, is_eager, tabulate
from losses.likelihoods import Gaussian
from losses.priors import Prior


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
            return line(c, v, log_w, var, learned)
        if v is None or axes is None:
            return points(c, log_w, var, learned)
        return ellipsoids(c, v, axes, log_w, var, learned, bool(fixed))

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
