"""The log-evidence at very many predictions in one dimension, read from a table.

A depth map asks for f(x) = log sum_k w_k N(x; c_k, v_k + sigma^2) at 10^5 to 10^6 predictions,
against K components each. So f and f' are computed on G nodes (N x K becomes G x K), and every
prediction reads them by cubic Hermite interpolation in its cell [x_j, x_j + h]:

    f(x) ~ c0 + c1 t + c2 t^2 + c3 t^3,  t = (x - x_j) / h,  |error| <= h^4 max |f''''| / 384.

No feature of f can hide between the nodes, because f'''' is bounded. With tau_k^2 = v_k + sigma^2,
the slopes b_k = -(x_j - c_k) / tau_k^2 of the components at a node, their shares p_k there and
their mean b = sum_k p_k b_k, f(x_j + z) - f(x_j) - b z is the logarithm of

    m(z) = sum_k p_k exp(y_k),  y_k = (b_k - b) z - z^2 / (2 tau_k^2)

for complex z, too. On the disc |z| <= rho this is |m - 1| <= eta, where

    eta = sum_k p_k (e^a_k - 1 - a_k) + rho^2 / 2 sum_k p_k / tau_k^2
    a_k = rho |b_k - b| + rho^2 / (2 tau_k^2) >= |y_k|,

because sum_k p_k (b_k - b) = 0. Where eta <= 1/2, log m is analytic and at most log 2 there, and by
Cauchy's estimate |f''''| <= 4! log 2 / (rho - h)^4 in the cell. With rho = 24 h, that is an error
below 2e-7 of the value, and below 1e-5 / rho of the slope. Without this bound there is no table;
then, and for predictions beyond its ends, f is computed by definition (`exact`).

N: samples; G: cells; K: components.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

NUMBERS = 1 << 22  # samples x components x dimensions that are computed together
CHUNK = 1 << 15  # samples that are read together, so that they stay in the processor's cache
REACH = 24  # rho / h
NARROWEST = 1 / 2  # rho / min tau: between labels that are dense, eta is 1/2 there
WIDTH = 3.0  # the table ends so many tau_k beyond c_k


def table_rows(x: Tensor, y: Tensor, sigma: Tensor, components: Tensor, strength: float) -> Tensor:
    """Theorem 1 in one dimension, without the normaliser: predictions x (N,), labels y (N,) and
    components (3, K), which are c, v and log w -> (N,). Nothing of size N x K is made if there is
    a table.
    """
    table, given = None, (sigma, components, strength)
    if not components.requires_grad:
        most = 1 << (len(x).bit_length() - 4)  # cells: at most an eighth of the samples
        numbers = components.double().numpy().tobytes()
        table = tabulate(numbers, sigma.item() ** 2, sigma.requires_grad, most, x.dtype)
    if table is None:
        return in_chunks(exact, components.shape[1], (x, y), *given)
    least, largest = (end.item() for end in torch.aminmax(x.detach()))
    if table.low <= least and largest <= table.high:  # False for NaN
        return _Read.apply(x, y, *given, table)
    outside = ~((x >= table.low) & (x <= table.high))
    inside = _Read.apply(x.masked_fill(outside, table.low), y, *given, table)
    others = in_chunks(exact, components.shape[1], (x[outside], y[outside]), *given)
    return inside.masked_scatter(outside, others)


def exact(x: Tensor, y: Tensor, sigma: Tensor, components: Tensor, strength: float) -> Tensor:
    """The same by definition."""
    c, v, log_w = components
    var = sigma.square()
    part = var / (v + var)
    logits = log_w + part.log() / 2 - (x[:, None] - c).square() * (part / var / 2)
    return (x - y).square() / (2 * var) + strength * torch.logsumexp(logits, -1).to(x.dtype)


def in_chunks(
    function: Callable, components: int, samples: tuple[Tensor, ...], *given: Any
) -> Tensor:
    """function(*samples, *given), (N, ...) -> (N,), a chunk of samples at a time, which is
    recomputed in the backward pass.
    """
    size = max(1, NUMBERS // (components * samples[0][0].numel()))
    if len(samples[0]) <= size:
        return function(*samples, *given)
    chunks = zip(*(x.split(size) for x in samples), strict=True)
    return torch.cat([checkpoint(function, *x, *given, use_reentrant=False) for x in chunks])  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Table:
    """f (and, if sigma is learned, sigma df/dsigma) as cubics on G equal cells."""

    coefficients: Tensor  # (4 F, G + 1); the last cell is a point
    learned: bool
    low: float
    high: float
    scale: float  # cells per unit

    def read(self, x: Tensor) -> list[Tensor]:
        """(N,) within the ends -> f, f' and, if sigma is learned, sigma df/dsigma, (N,) each."""
        t = (x - self.low).mul_(self.scale)
        picked = self.coefficients.index_select(1, t.int())  # (4 F, N): fast this way
        t = t.frac_()
        curves = picked.split(4)
        _, c1, c2, c3 = curves[0]
        slope = torch.addcmul(c1, t, torch.addcmul(c2, t, c3, value=1.5), value=2).mul_(self.scale)
        values = [c0.addcmul_(t, c1.addcmul_(t, c2.addcmul_(t, c3))) for c0, c1, c2, c3 in curves]
        return [values[0], slope, *values[1:]]


class _Read(torch.autograd.Function):
    """`exact` from a table. A backward pass that is differentiated itself uses the definition."""

    @staticmethod
    def forward(ctx, x, y, sigma, components, strength, table):  # pyright: ignore
        var, results = sigma.item() ** 2, [torch.empty_like(x) for _ in range(2 + table.learned)]
        for start in range(0, len(x), CHUNK):
            some = slice(start, start + CHUNK)
            found = table.read(x[some])
            if strength != 1:
                found = [part.mul_(strength) for part in found]
            r = x[some] - y[some]
            rows, to_x, *to_sigma = (result[some] for result in results)
            torch.addcmul(found[0], r, r, value=0.5 / var, out=rows)
            torch.add(found[1], r, alpha=1 / var, out=to_x)
            for slope in to_sigma:
                torch.addcmul(found[2], r, r, value=-1 / var, out=slope)
        ctx.save_for_backward(x, y, sigma, components, *results[1:])
        ctx.strength = strength
        return results[0]

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y, sigma, components, to_x, *to_sigma = ctx.saved_tensors
        needed = ctx.needs_input_grad
        slopes = {0: grad * to_x, 2: grad @ to_sigma[0] / sigma if to_sigma else None}
        if torch.is_grad_enabled():  # create_graph=True
            wanted = {k: t for k, t in {0: x, 2: sigma}.items() if needed[k]}
            rows = exact(x, y, sigma, components, ctx.strength)
            found = torch.autograd.grad(rows, [*wanted.values()], grad, create_graph=True)
            slopes = dict(zip(wanted, found, strict=True))
        return slopes.get(0), None, slopes.get(2), None, None, None


@lru_cache(maxsize=8)  # while sigma and the prior stay the same, so does the table
def tabulate(
    components: bytes, var: float, learned: bool, most: int, dtype: torch.dtype
) -> Table | None:
    """The table of float64 components (3, K): c, v and log w, for sigma^2 = var. Returns None if
    it would need more than `most` cells, or the error has no bound in one of them.
    """
    with torch.inference_mode(False), torch.no_grad():
        c, v, log_w = torch.frombuffer(bytearray(components), dtype=torch.float64).view(3, -1, 1)
        tau2 = v + var
        tau = tau2.sqrt()
        ends = float((c - WIDTH * tau).min()), float((c + WIDTH * tau).max())
        low, high = (float(np.float32(end)) for end in ends)  # so that x - low is exact
        count = (high - low) / float(tau.min()) * REACH / NARROWEST
        if not count <= most:
            return None
        count = math.ceil(count)
        h = (high - low) / count
        nodes = torch.linspace(low, high, count + 1, dtype=torch.float64)
        chunks = nodes.split(max(1, NUMBERS // len(c)))
        parts = [_nodes(x, c, tau2, log_w, var, REACH * h) for x in chunks]
        f, slope, sigma_slope, its_slope, eta = (torch.cat(p) for p in zip(*parts, strict=True))
        curves = [(f, slope), (sigma_slope, its_slope)][: 1 + learned]
        coefficients = torch.cat([_coefficients(y, h * dy) for y, dy in curves]).to(dtype)
        if not ((eta <= 0.5).all() and coefficients.isfinite().all()):
            return None
        return Table(coefficients.contiguous(), learned, low, high, count / (high - low))


def _nodes(
    x: Tensor, c: Tensor, tau2: Tensor, log_w: Tensor, var: float, rho: float
) -> tuple[Tensor, ...]:
    """f, f', sigma df/dsigma, its slope, and eta at nodes x (G,), for components (K, 1)."""
    r = x - c  # (K, G)
    b = r / -tau2
    logits = torch.addcmul(log_w - (tau2 / var).log() / 2, r, b, value=0.5)
    f = torch.logsumexp(logits, 0)
    log_p = logits.sub_(f)
    p = log_p.exp()
    slope = (p * b).sum(0)
    b = b.sub_(slope)
    a = torch.add(rho**2 / 2 / tau2, b.abs(), alpha=rho)
    eta = torch.add(a, log_p).exp_().sum(0) - (p * (a + 1)).sum(0)
    eta = eta + rho**2 / 2 * (p / tau2).sum(0)
    part = var / tau2
    u = part.square() / var * r.square() + (1 - part)
    its_slope = (p * (u * b + 2 * part.square() / var * r)).sum(0)
    return f, slope, (p * u).sum(0), its_slope, eta


def _coefficients(value: Tensor, slope: Tensor) -> Tensor:
    """(4, G + 1) polynomial coefficients of each cell, from f and h f' at the nodes."""
    rise, left, right = value.diff(), slope[:-1], slope[1:]
    cubic = [value[:-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise]
    end = torch.stack([value[-1], slope[-1], *torch.zeros_like(slope[:2])])
    return torch.cat([torch.stack(cubic), end[:, None]], -1)
