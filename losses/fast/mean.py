"""The mean loss of very many samples in one dimension with its gradients, in one step.

With the log-evidence f of table.py, the loss of a sample is

    (pred - y)^2 / 2 sigma^2 + strength * f(pred)    (up to the normaliser, which cancels at 1)

Nothing of size N x K is made. A backward pass that is differentiated itself (create_graph=True)
goes through the definition.

N: samples; K: components.
"""

import math
from typing import Any

import torch
from torch import Tensor

from .gradients import line
from .table import tabulate

FEW = 1024  # samples up to which the definition is fast enough, and that are summed together
CHUNK = 1 << 16  # samples that are read from a table together, so that they stay in the cache
NO_WEIGHT = -1e30  # log of weight zero: -inf has no second derivative


def table_mean(*given: Any) -> Tensor:
    """The mean loss (), with its gradients attached. `given`: the arguments of `_compute`."""
    return _compiled(*given)[0] if torch.compiler.is_compiling() else _Eager.apply(*given)


def _compute(
    pred: Tensor,
    raw: Tensor,
    target: Tensor,
    weight: Tensor | None,
    components: Tensor,
    strength: float,
    floor: float,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The mean loss () of pred, target (N, 1) under components (3, K), which are c, v and log w,
    and its gradients to pred and to the raw sigma; sigma^2 as a factor has none.
    """
    s = max(raw.item(), floor)
    var = s * s
    c, v, log_w = components[:, :, None]
    v = v if v.any() else None
    most = 1 << (len(pred).bit_length() - 4)  # cells: at most an eighth of the samples
    table = tabulate(components.double().numpy().tobytes(), var, learned, most, pred.dtype)

    def exact(x: Tensor) -> list[Tensor]:
        found = line(x, c, v, log_w[:, 0], learned, var)  # in float64 for labels far from zero
        value, residual, *sigma_slope = (t.to(x.dtype) for t in found)
        return [value, residual.div_(-var), *sigma_slope]

    def evidence(x: Tensor) -> list[Tensor]:
        """f, f' and, if sigma is learned, sigma df/dsigma."""
        if table is None:
            return exact(x)
        odd = table.exceptions(x)
        found = table.read(x if odd is None else x.masked_fill(odd, table.low))
        if odd is not None:
            for few in odd.nonzero()[:, 0].split(FEW):
                for part, right in zip(found, exact(x[few]), strict=True):
                    part[few] = right
        return found

    share: Any = 1 / len(pred) if weight is None else weight / weight.sum()
    loss = to_sigma = torch.zeros((), dtype=pred.dtype)
    to_pred, size = torch.empty_like(pred), FEW if table is None else CHUNK
    for start in range(0, len(pred), size):
        some = slice(start, start + size)
        each = share if weight is None else share[some]
        value, slope, *sigma_slope = evidence(pred[some, 0])
        r = pred[some, 0] - target[some, 0]
        to_pred[some, 0] = slope.mul_(strength * var).add_(r).mul_(2 * each)
        value = value if strength == 1 else value.mul_(strength)
        rows = value.addcmul_(r, r, value=0.5 / var)
        loss = loss + _sum(rows, each) * (2 * var)
        if learned:
            rows = sigma_slope[0].mul_(strength).addcmul_(r, r, value=-1 / var)
            to_sigma = to_sigma + _sum(rows, each) * (2 * s)
    if strength != 1:  # the normaliser does not cancel
        left = (1 - strength) * 2 * var
        loss = loss + left * math.log(s * math.sqrt(2 * math.pi))
        to_sigma = to_sigma + left / s
    return loss.to(pred.dtype), to_pred, to_sigma.to(raw.dtype).reshape(raw.shape)


def _sum(rows: Tensor, share: Tensor | float) -> Tensor:
    return rows.sum() * share if isinstance(share, float) else (rows * share).sum()


def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(*output[1:], *inputs[:5])
    ctx.settings = inputs[5:]


def _backward(ctx, grad: Tensor, *_: Tensor) -> tuple:
    to_pred, to_sigma, pred, raw, *rest = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True: differentiate the definition
        wanted = [t for t, need in zip((pred, raw), ctx.needs_input_grad, strict=False) if need]
        mean = _definition(pred, raw, *rest, *ctx.settings)
        found = iter(torch.autograd.grad(mean, wanted, create_graph=True))
        to_pred, to_sigma = (next(found) if need else None for need in ctx.needs_input_grad[:2])
    slopes = (None if t is None else grad * t for t in (to_pred, to_sigma))
    return *slopes, *[None] * 6


class _Eager(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *inputs):
        output = _compute(*inputs)
        _save(ctx, inputs, output)
        return output[0]

    backward = staticmethod(_backward)


# The compiled graph calls an operator; one name per import name of this package.
_compiled = torch.library.custom_op(
    f"{__name__.split('.')[0]}::table_mean", _compute, mutates_args=()
)


def _compiled_backward(ctx, grad: Tensor, *_: Tensor) -> tuple:
    """Depends on pred and raw, so that torch.compile raises on second derivatives."""
    to_pred, to_sigma, pred, raw, *_others = ctx.saved_tensors
    return grad * to_pred + 0 * pred, grad * to_sigma + 0 * raw, *[None] * 6


_compiled.register_autograd(_compiled_backward, setup_context=_save)


@_compiled.register_fake
def _(pred: Tensor, raw: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return pred.new_empty(()), torch.empty_like(pred), torch.empty_like(raw)


def _definition(
    pred: Tensor,
    raw: Tensor,
    target: Tensor,
    weight: Tensor | None,
    components: Tensor,
    strength: float,
    floor: float,
    learned: bool,
) -> Tensor:
    """The same mean by Theorem 1, up to a constant, for second derivatives."""
    s = (raw + (floor - raw.detach()).clamp(min=0)).to(pred.dtype)
    c, v, log_w = components
    var = v + s.square()
    logits = log_w - var.log() / 2 - (pred - c).square() / (2 * var)
    rows = ((pred - target) / s).square()[:, 0] / 2 + s.log()
    rows = rows + strength * torch.logsumexp(logits.clamp(min=NO_WEIGHT), -1)
    mean = rows.mean() if weight is None else weight @ rows / weight.sum()
    return 2 * s.detach().square() * mean.reshape(s.shape)
