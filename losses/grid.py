"""A smooth function of one number, evaluated at very many points.

A depth map asks for log E[p(y' | x)] at 10^5 to 10^6 predictions, against K components each. Yet
with one-dimensional labels the log-evidence is one smooth curve f(x). So f and f' are computed on
G nodes (rows x K becomes G x K) and every row reads them off by cubic Hermite interpolation:

    f(x) ~ c0 + c1 t + c2 t^2 + c3 t^3,  t = (x - x_j) / h in [0, 1],  |error| <= h^4 |f''''| / 384.

The grid is refined until that error, measured on the nodes themselves, is below `TOLERANCE`.
Gradients flow to x and, through the nodes, to whatever parameter f depends on (sigma).

N: rows; G: cells of the grid.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor  # pyright: ignore
from torch.utils.checkpoint import checkpoint

FEW_ROWS = 4096  # up to here the exact sum is cheaper
TOLERANCE = 1e-6  # relative, of values and of slopes; ten times below what is promised
CHUNK = 1 << 15  # rows that are worked on together, so that temporaries stay in the cache


def is_eager(x: Tensor) -> bool:
    """Whether x holds numbers that Python may look at (not under torch.compile or torch.func)."""
    return not (torch.compiler.is_compiling() or is_functorch_wrapped_tensor(x))


def pays_off(pred: Tensor, components: int) -> bool:
    """Whether a grid is cheaper than the exact sum: one dimension, many rows, a few components."""
    return pred.shape[-1] == 1 and pred.shape[0] > FEW_ROWS and components > 2 and is_eager(pred)


def interpolate(function: Callable[[Tensor], Tensor], pred: Tensor, differentiable: bool) -> Tensor:
    """function(pred) for a smooth `function`: (N, 1) -> (N,); in chunks where no grid suffices.

    `differentiable`: whether the function has a parameter of its own that wants a gradient.
    """
    x = pred[:, 0]
    low, high = (float(end) for end in torch.aminmax(x.detach()))
    cells = 128
    while low < high and 16 * cells < len(x):
        value, slope, error = _nodes(function, low, high, cells, x.device, differentiable)
        if error <= TOLERANCE:
            if not differentiable:
                value, slope = value.detach(), slope.detach()
            return _Cubic.apply(x, _coefficients(value, slope, x.dtype), low, high)
        cells *= 4
    return _in_chunks(function, pred)


def _nodes(
    function: Callable[[Tensor], Tensor],
    low: float,
    high: float,
    cells: int,
    device: torch.device,
    differentiable: bool,
) -> tuple[Tensor, Tensor, float]:
    """f and h f' on the cells + 1 nodes, and the relative error that interpolation will make.

    The error of a grid twice as coarse is seen at its midpoints, which are nodes here; ours is
    1/16 of it. A cubic's slope is off by at most 3.08 / h times what its value is off at the
    midpoint.
    """
    h = (high - low) / cells
    with torch.enable_grad():
        nodes = torch.linspace(low, high, cells + 1, dtype=torch.float64, device=device)
        nodes.requires_grad_()
        value = function(nodes[:, None])
        (slope,) = torch.autograd.grad(value.sum(), nodes, create_graph=differentiable)
    f, d = value.detach(), slope.detach() * h
    coarse = (f[:-2:2] + f[2::2]) / 2 + (d[:-2:2] - d[2::2]) / 4
    off = (coarse - f[1:-1:2]).abs() / 16
    steep = d[1:-1:2].abs()
    in_value = (off / f[1:-1:2].abs().clamp(min=1)).max()
    in_slope = (3.08 * off / torch.maximum(steep, steep.median()).clamp(min=1e-30)).max()
    return value, slope * h, float(torch.maximum(in_value, in_slope))


def _coefficients(value: Tensor, slope: Tensor, dtype: torch.dtype) -> Tensor:
    """(G, 4) polynomial coefficients of each cell, from f and h f' on its two ends."""
    rise = value[1:] - value[:-1]
    left, right = slope[:-1], slope[1:]
    cubic = [value[:-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise]
    return torch.stack(cubic, dim=-1).to(dtype)


class _Cubic(torch.autograd.Function):
    """(N,) values of the piecewise cubic with (G, 4) coefficients over [low, high]."""

    @staticmethod
    def forward(ctx, x: Tensor, coefficients: Tensor, low: float, high: float) -> Tensor:
        value, slope = torch.empty_like(x), torch.empty_like(x)
        scale = len(coefficients) / (high - low)
        for rows in _row_slices(len(x)):
            cell, t = _locate(x[rows], low, scale, len(coefficients))
            c0, c1, c2, c3 = coefficients.index_select(0, cell).unbind(1)
            value[rows] = torch.addcmul(c0, t, torch.addcmul(c1, t, torch.addcmul(c2, t, c3)))
            bend = torch.addcmul(c2, t, c3, value=1.5)  # c2 + 3/2 c3 t
            slope[rows] = torch.addcmul(c1, t, bend, value=2).mul_(scale)
        ctx.save_for_backward(x, slope)
        ctx.grid = low, scale, coefficients.shape
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, slope = ctx.saved_tensors
        low, scale, shape = ctx.grid
        to_coefficients = None
        if ctx.needs_input_grad[1]:
            to_coefficients = grad.new_zeros(shape).mT.contiguous()  # (4, G)
            for rows in _row_slices(len(x)):
                cell, t = _locate(x[rows], low, scale, shape[0])
                part = grad[rows].clone()
                for power in to_coefficients:  # (cells,) each: adding whole rows is far slower
                    power.index_add_(0, cell, part)
                    part *= t
            to_coefficients = to_coefficients.mT
        return grad * slope if ctx.needs_input_grad[0] else None, to_coefficients, None, None


def _row_slices(rows: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, rows, CHUNK)]


def _locate(x: Tensor, low: float, scale: float, cells: int) -> tuple[Tensor, Tensor]:
    """The cell of each x and its place t in [0, 1] within it."""
    place = (x - low).mul_(scale)
    cell = place.int().clamp_(0, cells - 1)
    return cell, place.sub_(cell)


def _in_chunks(function: Callable[[Tensor], Tensor], pred: Tensor) -> Tensor:
    """The exact function, a bounded number of rows at a time, recomputed in the backward pass."""
    chunks = [checkpoint(function, rows, use_reentrant=False) for rows in pred.split(4096)]
    return torch.cat(chunks)  # pyright: ignore[reportArgumentType]
