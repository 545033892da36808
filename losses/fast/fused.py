"""Theorem 1 for a Gaussian likelihood, the mean over the rows and its gradients in one step.

With the log-evidence f of evidence.py,

    row = |pred - y|^2 / 2 sigma^2 + strength * f    (up to what cancels at strength 1)

Its gradients are computed along with the value, and the backward pass is one product: no graph,
and nothing of size rows x components is kept. A backward pass that is to be differentiated itself
(create_graph=True) goes through the definition instead.

N: rows; D: label dimensions; K: components.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..batches import is_readable, samples
from ..mixture import GaussianMixture
from ..priors import Bins
from .evidence import Axes, Evidence, diagonal, ellipsoids, line, points
from .grid import Curves, Table, cells, tabulate
from .recent import recent

FEW_ROWS = 4096  # up to here the exact sum is cheaper than a table
CHUNK = 1 << 16  # rows that are read together, so that temporaries stay in the cache
NUMBERS = 1 << 22  # rows x components that are summed together on a GPU

Read = Callable[[Table, Tensor], Curves]


class Sigma(NamedTuple):
    """raw () or (D,), as the likelihood holds it; never below the floor; learned or fixed."""

    raw: Tensor
    floor: float
    learned: bool


class Components(NamedTuple):
    """p_train: centers c (K, D), covariances (K, D, D) or None for single labels, log-weights."""

    c: Tensor
    covariances: Tensor | None
    log_w: Tensor


def components(prior: Any, target: Tensor, weight: Tensor | None) -> Components:
    """Of a Bins, a Batch (whose queue is pushed) or a GaussianMixture, in target's precision."""
    if isinstance(prior, GaussianMixture):
        prior.check(target)
        tensors = prior.means, prior.covariances, prior.weights
        c, covariances, weights = (t.to(target.dtype) for t in tensors)
        return Components(c, covariances, weights.log())
    labels = target if isinstance(prior, Bins) else samples(target, weight)
    c, log_w = prior.atoms(labels)
    return Components(c, None, log_w)


def value_and_gradients(
    sigma: Sigma,
    over: Components,
    strength: float,
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reuse: bool = False,
    read: Read | None = None,
    near: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """2 sigma^2 times the mean of the rows (), weighted by (N,) if given, and its gradients to
    pred (N, D) and, if it is learned, to sigma, () or (D,); sigma^2 as a factor has none.

    pred, target (N, D); one sigma, unless the prior is of single labels. `reuse`: whether the
    next step will have the same components, so that what is made of them is worth keeping;
    `read`: reads all rows off a table at once, in place of `Table.read` by chunks; `near`: the
    caller knows of single labels, hidden by vmap, that `points` may take float32 for them.
    """
    x, (raw, floor, learned) = pred.detach(), sigma
    readable = raw.device == pred.device and is_readable(pred)
    if readable and raw.ndim == 0:  # a Python number saves torch calls
        s = max(raw.item(), floor)
        evidence = _evidence(over, s * s, learned, x, readable, reuse, read=read)
        return _loss(evidence, x, target, s, strength, weight, learned)
    s = raw.detach().to(x.dtype).clamp(min=floor)
    evidence = _evidence(over, 1.0, learned, x / s, readable, False, s, near=near)
    loss, to_pred, to_sigma = _loss(
        evidence, x / s, target / s, 1.0, strength, weight, learned, s.ndim > 0
    )
    if strength != 1:
        log_sigma = s.log().sum() if s.ndim else x.shape[-1] * s.log()
        loss = loss + 2 * (1 - strength) * log_sigma
    var = s.square().mean()  # back to the labels' own unit
    to_sigma = None if to_sigma is None else to_sigma * (var / s)
    return loss * var, to_pred * (var / s), to_sigma


def _evidence(
    over: Components,
    var: float,
    learned: bool,
    x: Tensor,
    readable: bool,
    reuse: bool,
    s: Tensor | None = None,
    read: Read | None = None,
    near: bool = False,
) -> Iterator[tuple[slice | None, Evidence]]:
    """The evidence of x (N, D), for slices of the rows (None: all); with s, x is in units of it."""
    c, cov, log_w = over
    rows, dims = x.shape
    if dims > 1 and cov is not None:
        reuse = reuse and readable

        # a learned sigma moves little by little: for the axes a power of two below it will do
        below = 4.0 ** math.floor(math.log2(var) / 2) if math.isfinite(var) else var

        def axes() -> Axes:
            return diagonal(c, cov, below)

        def precisions() -> Evidence:
            return ellipsoids(axes(), log_w, var, learned, True)

        if reuse and not learned:
            yield None, recent((c, cov, log_w), ("precisions", var), precisions)
        else:
            known = recent((c, cov), ("axes", below), axes) if reuse else axes()
            known = known if s is None else known.divided(s)
            yield None, ellipsoids(known, log_w, var, learned, False)
        return
    if s is not None:
        c, cov = c / s, cov if cov is None else cov / s**2
    if dims > 1 or (near and cov is None):
        yield None, points(c, log_w, var, learned, near)
        return
    v = None if cov is None else cov[:, 0]

    def sums() -> Evidence:  # of a copy: the prior's own tensor may be edited
        return line(c.clone(), v, log_w, var, learned)

    tensors = (c, log_w) if v is None else (c, v, log_w)
    same = reuse and readable and not learned
    exact = recent(tensors, ("sums", var), sums) if same else line(c, v, log_w, var, learned)
    if rows <= FEW_ROWS:
        yield None, exact
        return
    table = _table(c, v, log_w, var, learned, x, reuse) if readable else None
    few = FEW_ROWS if x.device.type == "cpu" else max(FEW_ROWS, NUMBERS // len(c))
    size = few if table is None else CHUNK if read is None else rows
    each = exact if table is None else _reader(table, var, exact, read or Table.read)
    for start in range(0, rows, size):
        yield slice(start, start + size), each


def _table(
    c: Tensor, v: Tensor | None, log_w: Tensor, var: float, learned: bool, x: Tensor, reuse: bool
) -> Table | None:
    """The table of the prior and sigma, whatever x is; None if x has too few rows for it."""
    most = 1 << (len(x).bit_length() - 4)  # an eighth of the rows, or somewhat less

    def make() -> Table | None:
        ends = cells(c, v, var)
        if ends[0] > most:
            return None
        return tabulate(c, v, log_w, var, learned, ends, x.dtype)

    tensors = (c, log_w) if v is None else (c, v, log_w)
    table = recent(tensors, ("table", var, learned, x.dtype, most), make) if reuse else make()
    return table if table is not None and table.useful else None


def _reader(table: Table, var: float, exact: Evidence, curves: Read) -> Evidence:
    """The evidence, read off the table where that is right, and summed elsewhere."""

    def read(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, slope, others = curves(table, x[:, 0])
        residual = slope.mul_(-var)[:, None]
        return value[:, None], residual, others[0][:, None] if others else residual

    def read_or_sum(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        odd = table.exceptions(x[:, 0])
        if odd is None:
            return read(x)
        parts = read(x.masked_fill(odd[:, None], table.low))
        for few in odd.nonzero()[:, 0].split(FEW_ROWS):
            for part, right in zip(parts, exact(x[few]), strict=True):
                part[few] = right
        return parts

    return read_or_sum


def _loss(
    evidence: Iterator[tuple[slice | None, Evidence]],
    x: Tensor,
    target: Tensor,
    s: float,
    strength: float,
    weight: Tensor | None,
    learned: bool,
    per_dimension: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The loss () and its gradients to x (N, D) and to sigma, () or, `per_dimension`, (D,)."""
    dims, var = x.shape[-1], s * s

    def part(evidence: Evidence, x: Tensor, target: Tensor, portion: Any) -> list[Tensor]:
        """What rows add; each counts with its portion, (N, 1) or one number."""
        value, residual, sigma_slope = evidence(x)
        r = x - target
        if strength != 1:
            value, residual, sigma_slope = (strength * t for t in (value, residual, sigma_slope))
        to_pred = (r - residual).mul_(2 * portion)
        if dims == 1 and not learned:
            rows = torch.addcmul(value, r, r, value=0.5 / var)
            return [_mean(rows, portion, 2 * var), to_pred]
        square = r * r
        energy = square if dims == 1 else square.sum(-1, keepdim=True)
        loss = _mean(torch.add(value, energy, alpha=0.5 / var), portion, 2 * var)
        if not learned:
            return [loss, to_pred]
        if per_dimension:
            rows = torch.sub(sigma_slope, square, alpha=1 / var)  # (N, D)
            return [loss, to_pred, (rows * portion).sum(0) * (2 * s)]
        rows = torch.sub(sigma_slope.sum(-1, keepdim=True), energy, alpha=1 / var)
        return [loss, to_pred, _mean(rows, portion, 2 * s)]

    if weight is not None:
        weight = weight.to(x)  # before it is summed: low precision may have no such number
    portion: Any = 1 / len(x) if weight is None else (weight / weight.sum())[:, None]
    parts = []
    for rows, each in evidence:
        given = x, target, portion
        if rows is not None:
            given = x[rows], target[rows], portion if weight is None else portion[rows]
        parts.append(part(each, *given))
    if len(parts) > 1:
        losses, to_preds, *to_sigmas = zip(*parts, strict=True)
        parts = [[sum(losses), torch.cat(to_preds), *(sum(each) for each in to_sigmas)]]
    loss, to_pred, to_sigma = parts[0][0], parts[0][1], parts[0][2] if learned else None
    if strength != 1:
        left = (1 - strength) * 2 * var  # of what cancels otherwise
        loss = loss + left * dims * math.log(s * math.sqrt(2 * math.pi))
        if to_sigma is not None:
            to_sigma = to_sigma + left / s * (1 if per_dimension else dims)
    return loss, to_pred, to_sigma


def _mean(rows: Tensor, portion: Tensor | float, unit: float) -> Tensor:
    if isinstance(portion, float):
        return rows.sum() * (portion * unit)
    return (rows * portion).sum() * unit


class Attach(torch.autograd.Function):
    """The loss () with the given gradients to pred and, unless None, to sigma. `definition`:
    (pred, sigma) -> the same loss with a graph, for gradients that are differentiated again.
    """

    @staticmethod
    def forward(ctx, pred, sigma, loss, to_pred, to_sigma, definition: Callable):
        ctx.definition = definition
        ctx.save_for_backward(pred, None if to_sigma is None else sigma, to_pred, to_sigma)
        return loss

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        pred, sigma, to_pred, to_sigma = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            wanted = [
                t for t, need in zip((pred, sigma), ctx.needs_input_grad, strict=False) if need
            ]
            made = iter(torch.autograd.grad(ctx.definition(pred, sigma), wanted, create_graph=True))
            to_pred, to_sigma = (next(made) if need else None for need in ctx.needs_input_grad[:2])
        into_pred = grad * to_pred if ctx.needs_input_grad[0] else None
        into_sigma = grad * to_sigma if ctx.needs_input_grad[1] else None
        return into_pred, into_sigma, None, None, None, None
