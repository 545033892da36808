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
below 2e-7 of the value, and below 1e-5 / rho of the slope. Cells with a larger eta are not `good`:
predictions there, and those beyond the ends of the table, are summed exactly.

N: samples; G: cells; K: components.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

REACH = 24  # rho / h
NARROWEST = 1 / 2  # rho / min tau: between labels that are dense, eta is 1/2 there
WIDTH = 3.0  # the table ends so many tau_k beyond c_k


@dataclass(frozen=True)
class Table:
    """f (and, if sigma is learned, sigma df/dsigma) as cubics on G equal cells."""

    coefficients: Tensor  # (F, 4, G + 1); the last cell is a point
    good: Tensor  # (G + 1,): whether the interpolation is accurate there
    all_good: bool
    low: float
    high: float
    scale: float  # cells per unit

    def exceptions(self, x: Tensor) -> Tensor | None:
        """The mask (N,) of the predictions that must be summed exactly; None if there are none."""
        low, high = (end.item() for end in torch.aminmax(x))
        if self.low <= low and high <= self.high and self.all_good:  # False for NaN
            return None
        outside = ~((x >= self.low) & (x <= self.high))
        cell = ((x - self.low) * self.scale).masked_fill(outside, 0).int()
        return outside | ~self.good[cell]

    def read(self, x: Tensor) -> list[Tensor]:
        """(N,) within the ends -> f, f' and, if sigma is learned, sigma df/dsigma, (N,) each."""
        t = (x - self.low).mul_(self.scale)
        cell = t.int()
        t = t.sub_(cell)
        picked = self.coefficients.flatten(0, 1).index_select(1, cell)  # (4 F, N): fast this way
        (c0, c1, c2, c3), *others = picked.split(4)
        slope = torch.addcmul(c1, t, torch.addcmul(c2, t, c3, value=1.5), value=2).mul_(self.scale)
        return [_cubic((c0, c1, c2, c3), t), slope, *(_cubic(other, t) for other in others)]


@lru_cache(maxsize=8)  # while sigma and the prior stay the same, so does the table
def tabulate(
    components: bytes, var: float, learned: bool, most: int, dtype: torch.dtype
) -> Table | None:
    """The table of float64 components (3, K): c, v and log w, for sigma^2 = var. Returns None if
    it would need more than `most` cells, or most of its cells would not be good.
    """
    with torch.inference_mode(False), torch.no_grad():
        numbers = torch.frombuffer(bytearray(components), dtype=torch.float64)
        c, v, log_w = numbers.view(3, -1, 1)
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
        chunks = nodes.split(max(1, (1 << 22) // len(c)))
        parts = [_nodes(x, c, tau2, log_w, var, REACH * h) for x in chunks]
        f, slope, sigma_slope, its_slope, eta = (torch.cat(p) for p in zip(*parts, strict=True))
        curves = [(f, slope), (sigma_slope, its_slope)][: 1 + learned]
        coefficients = torch.stack([_coefficients(y, h * dy) for y, dy in curves]).to(dtype)
        good = (eta <= 0.5) & coefficients.isfinite().all(0).all(0)
        if 2 * int(good.sum()) <= count:
            return None
        scale = count / (high - low)
        return Table(coefficients.contiguous(), good, bool(good.all()), low, high, scale)


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


def _cubic(coefficients: Iterable[Tensor], t: Tensor) -> Tensor:
    c0, c1, c2, c3 = coefficients
    return torch.addcmul(c0, t, torch.addcmul(c1, t, torch.addcmul(c2, t, c3)))
