"""The log-evidence at very many predictions in one dimension, read off a table.

A depth map asks for f(x) = log sum_k w_k N(x; c_k, v_k + sigma^2) at 10^5 to 10^6 predictions,
against K components each. So f and f' are computed on G nodes (rows x K becomes G x K), and every
row reads them off by cubic Hermite interpolation in its cell [x_j, x_j + h]:

    f(x) ~ c0 + c1 t + c2 t^2 + c3 t^3,  t = (x - x_j) / h,  |error| <= h^4 max |f''''| / 384.

No feature of f can hide between the nodes, because f'''' is bounded, not looked for. With tau_k^2 =
v_k + sigma^2, the slopes b_k = -(x_j - c_k) / tau_k^2 of the components at a node, their shares p_k
there and their mean b = sum_k p_k b_k, f(x_j + z) - f(x_j) - b z is the logarithm of

    m(z) = sum_k p_k exp(y_k),  y_k = (b_k - b) z - z^2 / (2 tau_k^2)

for complex z, too. On the disc |z| <= rho this is |m - 1| <= eta, where

    eta = sum_k p_k (e^a_k - 1 - a_k) + rho^2 / 2 sum_k p_k / tau_k^2
    a_k = rho |b_k - b| + rho^2 / (2 tau_k^2) >= |y_k|,

because sum_k p_k (b_k - b) = 0. Where eta <= 1/2, log m is analytic and at most log 2 there, and by
Cauchy's estimate |f''''| <= 4! log 2 / (rho - h)^4 in the cell. With rho = 24 h, that is an error
below 2e-7 of the value, and below 1e-5 / rho of the slope. Cells with a larger eta are not `good`:
their rows, and those beyond the ends of the table, are summed exactly. So what is read is right
whatever the predictions are; how many rows are read only decides how fast it is.

N: rows; G: cells; K: components.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

REACH = 24  # rho / h
NARROWEST = 1 / 2  # rho / min tau: between labels that are dense, eta is 1/2 there
WIDTH = 3.0  # the table ends so many tau_k beyond c_k

# the first curve's values and slopes, and the other curves' values, (N,) each
Curves = tuple[Tensor, Tensor, list[Tensor]]


@dataclass(frozen=True)
class Table:
    """F functions as cubics on G equal cells from `low` to `high`, `scale` cells to a unit."""

    coefficients: Tensor  # (F, 4, G + 1); the last cell is a point
    good: Tensor  # (G + 1,): whether what is read there is right
    low: float
    high: float
    scale: float
    all_good: bool
    useful: bool  # whether most cells are good

    def read(self, x: Tensor) -> Curves:
        """(N,) within the ends -> the curves there."""
        return read(self.coefficients, x, self.low, self.scale)

    def exceptions(self, x: Tensor) -> Tensor | None:
        """The rows of x (N,) that must not be read, as a mask (N,), or None if all may be."""
        low, high = (end.item() for end in torch.aminmax(x))
        inside = self.low <= low and high <= self.high  # not so if one is nan
        if inside and self.all_good:
            return None
        outside = ~((x >= self.low) & (x <= self.high))
        cell = ((x - self.low) * self.scale).masked_fill(outside, 0).int()
        return outside | ~self.good[cell]


def read(coefficients: Tensor, x: Tensor, low: Any, scale: Any) -> Curves:
    """What `Table.read` gives, as a function of numbers alone."""
    place = (x - low).mul_(scale)
    cell = place.int()
    t = place.sub_(cell)
    picked = coefficients.flatten(0, 1).index_select(1, cell)  # (4 F, N): fast this way
    (c0, c1, c2, c3), *others = picked.split(4)
    bend = torch.addcmul(c2, t, c3, value=1.5)  # c2 + 3/2 c3 t
    slope = torch.addcmul(c1, t, bend, value=2).mul_(scale)
    return _cubic((c0, c1, c2, c3), t), slope, [_cubic(c, t) for c in others]


def cells(c: Tensor, v: Tensor | None, var: float) -> tuple[int, float, float]:
    """How many cells a table needs at least, and its ends; from the prior and sigma alone."""
    tau = torch.full_like(c, var).sqrt() if v is None else (v + var).sqrt()
    low, high = float((c - WIDTH * tau).min()), float((c + WIDTH * tau).max())
    low, high = float(np.float32(low)), float(np.float32(high))  # so that x - low is exact
    count = (high - low) / float(tau.min()) * REACH / NARROWEST
    return (math.ceil(count) if math.isfinite(count) else 1 << 62), low, high


def tabulate(
    c: Tensor,
    v: Tensor | None,
    log_w: Tensor,
    var: float,
    learned: bool,
    ends: tuple[int, float, float],
    dtype: torch.dtype,
) -> Table:
    """f (and, if sigma is learned, sigma df/dsigma) of `evidence.line`, with c, v (K, 1)."""
    count, low, high = ends
    c, log_w = c.double(), log_w.double()[:, None]
    h = (high - low) / count
    rho = REACH * h
    x = torch.linspace(low, high, count + 1, dtype=torch.float64, device=c.device)
    tau2 = torch.full_like(c, var) if v is None else v.double() + var
    r = x - c  # (K, G + 1)
    b = r / -tau2
    logits = torch.addcmul(log_w - (tau2 / var).log() / 2, r, b, value=0.5)
    f = torch.logsumexp(logits, 0)
    log_p = logits.sub_(f)
    p = log_p.exp()
    slope = torch.linalg.vecdot(p, b, dim=0)
    b = b.sub_(slope)
    a = torch.add(rho**2 / 2 / tau2, b.abs(), alpha=rho)
    eta = torch.add(a, log_p).exp_().sum(0) - torch.linalg.vecdot(p, a + 1, dim=0)
    eta = eta + rho**2 / 2 * (p / tau2).sum(0)
    curves, slopes = [f], [slope]
    if learned:
        part = var / tau2
        u = part.square() / var * r.square() + (1 - part)
        curves.append(torch.linalg.vecdot(p, u, dim=0))
        slopes.append(torch.linalg.vecdot(p, u * b + 2 * part.square() / var * r, dim=0))
    coefficients = _coefficients(torch.stack(curves), torch.stack(slopes) * h, dtype)
    good = (eta <= 0.5) & coefficients.isfinite().all(0).all(0)
    some, all_good = 2 * int(good.sum()) > count, bool(good.all())
    return Table(coefficients, good, low, high, count / (high - low), all_good, some)


def _coefficients(value: Tensor, slope: Tensor, dtype: torch.dtype) -> Tensor:
    """(F, 4, G + 1) polynomial coefficients of each cell, from f and h f' on its two ends."""
    rise = value[:, 1:] - value[:, :-1]
    left, right = slope[:, :-1], slope[:, 1:]
    cubic = [value[:, :-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise]
    end = torch.stack([value[:, -1], slope[:, -1], *torch.zeros_like(slope[:, :2].mT)], -1)
    return torch.cat([torch.stack(cubic, 1), end[..., None]], -1).to(dtype).contiguous()


def _cubic(coefficients: Iterable[Tensor], t: Tensor) -> Tensor:
    c0, c1, c2, c3 = coefficients
    return torch.addcmul(c0, t, torch.addcmul(c1, t, torch.addcmul(c2, t, c3)))
