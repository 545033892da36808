"""A smooth function of one number, evaluated at very many points.

A depth map asks for log E[p(y' | x)] at 10^5 to 10^6 predictions, against K components each. Yet
with one-dimensional labels the log-evidence is one smooth curve f(x). So f and f' are computed on
G nodes (rows x K becomes G x K) and every row reads them off by cubic Hermite interpolation:

    f(x) ~ c0 + c1 t + c2 t^2 + c3 t^3,  t = (x - x_j) / h in [0, 1],  |error| <= h^4 |f''''| / 384.

The grid is refined until that error, measured on the nodes themselves, is below `TOLERANCE`.
Gradients flow to x and, through the nodes, to whatever parameter f depends on (sigma).

N: rows; G: cells of the grid.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor  # pyright: ignore
from torch.utils.checkpoint import checkpoint

FEW_ROWS = 4096  # up to here the exact sum is cheaper
TOLERANCE = 1e-6  # relative, of values and of slopes; ten times below what is promised
CHUNK = 1 << 16  # rows that are worked on together, so that temporaries stay in the cache


def is_eager(x: Tensor) -> bool:
    """Whether x holds numbers that Python may look at (not under torch.compile or torch.func)."""
    return not (torch.compiler.is_compiling() or is_functorch_wrapped_tensor(x))


def pays_off(pred: Tensor, components: int) -> bool:
    """Whether a grid is cheaper than the exact sum: one dimension, many rows, a few components."""
    return pred.shape[-1] == 1 and pred.shape[0] > FEW_ROWS and components > 2 and is_eager(pred)


@dataclass(frozen=True)
class Curves:
    """F functions as cubics on G equal cells from `low` to `high`, `scale` cells to a unit."""

    coefficients: Tensor  # (F, 4, G + 1); the last cell is a point
    low: float
    high: float
    scale: float

    def read(self, x: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """(N,) -> the first curve's values and slopes, and the other curves' values, (N,) each."""
        cell, t = self.locate(x)
        picked = self.coefficients.flatten(0, 1).index_select(1, cell)  # (4 F, N): fast this way
        (c0, c1, c2, c3), *others = picked.split(4)
        bend = torch.addcmul(c2, t, c3, value=1.5)  # c2 + 3/2 c3 t
        slope = torch.addcmul(c1, t, bend, value=2).mul_(self.scale)
        return _cubic((c0, c1, c2, c3), t), slope, [_cubic(c, t) for c in others]

    def locate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The cell of each x and its place t in [0, 1] within it."""
        place = (x - self.low).mul_(self.scale)
        cell = place.int()
        return cell, place.sub_(cell)


def tabulate(
    functions: Callable[[Tensor], Tensor],
    x: Tensor,
    differentiable: bool = False,
    kept: list[Curves] | None = None,
) -> Curves | None:
    """The curves of smooth `functions`, (G, 1) -> (F, G), over all of x (N,); None where a grid
    fine enough would cost more than the rows themselves.

    `differentiable`: whether the functions have a parameter that wants a gradient.
    `kept`: the curves of an earlier call with the same functions, if any, replaced when x leaves
    them; a little is added at both ends, so that this is rare.
    """
    low, high = (float(end) for end in torch.aminmax(x.detach()))
    if kept and kept[0].low <= low and high <= kept[0].high:
        return kept[0]
    if kept is not None and high > low:
        low, high = low - (high - low) / 8, high + (high - low) / 8
    cells = 128 if len(x) < CHUNK else 512
    while low < high and 16 * cells < len(x):
        value, slope, error = _nodes(functions, low, high, cells, x.device, differentiable)
        if error <= TOLERANCE:
            scale = cells / (high - low)
            curves = Curves(_coefficients(value, slope, x.dtype), low, high, scale)
            if kept is not None:
                kept[:] = [curves]
            return curves
        cells *= 4
    return None


def interpolate(function: Callable[[Tensor], Tensor], pred: Tensor, differentiable: bool) -> Tensor:
    """function(pred) for a smooth `function`: (N, 1) -> (N,); in chunks where no grid suffices."""
    curves = tabulate(lambda nodes: function(nodes)[None], pred[:, 0], differentiable)
    if curves is None:
        return _in_chunks(function, pred)
    return _Cubic.apply(pred[:, 0], curves.coefficients[0], curves)


def row_slices(rows: int, chunk: int = CHUNK) -> list[slice]:
    return [slice(start, start + chunk) for start in range(0, rows, chunk)]


def _nodes(
    functions: Callable[[Tensor], Tensor],
    low: float,
    high: float,
    cells: int,
    device: torch.device,
    differentiable: bool,
) -> tuple[Tensor, Tensor, float]:
    """f and h f' on the cells + 1 nodes, (F, G + 1), and the relative error of interpolation.

    The error of a grid twice as coarse is seen at its midpoints, which are nodes here; ours is
    1/16 of it. A cubic's slope is off by at most 3.08 / h times what its value is off at the
    midpoint.
    """
    h = (high - low) / cells
    with torch.enable_grad():
        nodes = torch.linspace(low, high, cells + 1, dtype=torch.float64, device=device)
        nodes.requires_grad_()
        value = functions(nodes[:, None])
        slopes = [torch.autograd.grad(f.sum(), nodes, None, True, differentiable) for f in value]
    slope = torch.stack([slope for (slope,) in slopes])
    if not differentiable:
        value, slope = value.detach(), slope.detach()
    f, d = value.detach(), slope.detach() * h
    coarse = (f[:, :-2:2] + f[:, 2::2]) / 2 + (d[:, :-2:2] - d[:, 2::2]) / 4
    off = (coarse - f[:, 1:-1:2]).abs() / 16
    in_value = (off / f[:, 1:-1:2].abs().clamp(min=1)).max()
    steep = d[0, 1:-1:2].abs()  # only the first curve's slope is read
    in_slope = (3.08 * off[0] / torch.maximum(steep, steep.median()).clamp(min=1e-30)).max()
    return value, slope * h, float(torch.maximum(in_value, in_slope))


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


class _Cubic(torch.autograd.Function):
    """(N,) values of a curve, with gradients to x and to its coefficients (4, G + 1)."""

    @staticmethod
    def forward(ctx, x: Tensor, coefficients: Tensor, curves: Curves) -> Tensor:
        value, slope = torch.empty_like(x), torch.empty_like(x)
        for rows in row_slices(len(x)):
            value[rows], slope[rows], _ = curves.read(x[rows])
        ctx.save_for_backward(x, slope)
        ctx.curves = curves
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, slope = ctx.saved_tensors
        to_coefficients = None
        if ctx.needs_input_grad[1]:
            to_coefficients = torch.zeros_like(ctx.curves.coefficients[0])
            for rows in row_slices(len(x)):
                cell, t = ctx.curves.locate(x[rows])
                part = grad[rows].clone()
                for power in to_coefficients:  # (cells,) each: adding whole rows is far slower
                    power.index_add_(0, cell, part)
                    part *= t
        return grad * slope if ctx.needs_input_grad[0] else None, to_coefficients, None


def _in_chunks(function: Callable[[Tensor], Tensor], pred: Tensor) -> Tensor:
    """The exact function, a bounded number of rows at a time, recomputed in the backward pass."""
    chunks = [checkpoint(function, rows, use_reentrant=False) for rows in pred.split(4096)]
    return torch.cat(chunks)  # pyright: ignore[reportArgumentType]
