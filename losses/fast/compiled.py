"""The fused step as one operation for torch.compile, which sees no numbers and so could not choose
between a table and a sum: what is compiled calls what is run without. Only reading a table is
compiled, too: one pass over the rows in place of a dozen.

N: rows; K: components.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .fused import Components, Sigma, value_and_gradients
from .grid import Curves, Table, read

# one name for each name under which this folder is imported
NAME = f"{__name__.split('.')[0]}::line_mean"


@functools.cache  # not at import: what compiles changes settings of torch
def _compiled_read() -> Callable[..., Curves]:
    return torch.compile(read, fullgraph=True, dynamic=True)


def _read(table: Table, x: Tensor) -> Curves:
    """`Table.read`; the ends as tensors, because another number would be compiled anew."""
    return _compiled_read()(table.coefficients, x, *x.new_tensor((table.low, table.scale)))


@torch.library.custom_op(NAME, mutates_args=())
def _line_mean(
    pred: Tensor,
    sigma: Tensor,
    target: Tensor,
    weight: Tensor | None,
    c: Tensor,
    covariances: Tensor | None,
    log_w: Tensor,
    floor: float,
    strength: float,
    learned: bool,
    reuse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    over, scale = Components(c, covariances, log_w), Sigma(sigma.detach(), floor, learned)
    loss, to_pred, to_sigma = value_and_gradients(
        scale, over, strength, pred, target, weight, reuse, _read
    )
    to_sigma = torch.zeros_like(sigma) if to_sigma is None else to_sigma.to(sigma)
    return loss, to_pred, to_sigma.reshape(sigma.shape)


@_line_mean.register_fake
def _(pred: Tensor, sigma: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return pred.new_empty(()), torch.empty_like(pred), torch.empty_like(sigma)


@torch.library.custom_op(f"{NAME}_backward", mutates_args=())
def _times(
    grad: Tensor, to_pred: Tensor, to_sigma: Tensor, pred: Tensor, sigma: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients, grad () times what each of them is. They depend on pred and sigma, so torch
    refuses to differentiate them again, as it does with all that is compiled.
    """
    return grad * to_pred, grad * to_sigma


@_times.register_fake
def _(grad: Tensor, to_pred: Tensor, to_sigma: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(to_pred), torch.empty_like(to_sigma)


def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(*output[1:], *inputs[:2])


def _backward(ctx, grad: Tensor, *_: Tensor) -> tuple:
    return *_times(grad, *ctx.saved_tensors), *[None] * 9


_line_mean.register_autograd(_backward, setup_context=_save)


def line_mean(
    sigma: Sigma,
    over: Components,
    strength: float,
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reuse: bool,
) -> Tensor:
    """`value_and_gradients`, with the gradients attached; in one dimension, on the CPU."""
    settings = sigma.floor, float(strength), sigma.learned, reuse
    return _line_mean(pred, sigma.raw, target, weight, *over, *settings)[0]
