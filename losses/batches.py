"""A batch before the loss: checked, in full precision, and that of all ranks.

Shapes and gradients are always checked. What only the numbers tell (labels that are not finite,
weights that are negative or sum to nothing) is checked on the CPU, in plain calls. On a GPU a look
would make Python wait for the device in every step, and torch.compile and torch.func have no
numbers to look at; there such a batch makes the loss NaN, and `check_numbers` says why.

N: rows; D: label dimensions; W: the likelihood's width.
"""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, distributed
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._subclasses.fake_tensor import FakeTensor


def is_transformed() -> bool:
    """Whether torch.func (grad, vmap, jvp, ...) is at work; inside torch.compile, too."""
    return _functorch.get_dynamic_layer_stack_depth() > 0


def is_readable(x: Tensor) -> bool:
    """Whether x has numbers that Python can look at without waiting for a device."""
    hidden = torch.compiler.is_compiling() or isinstance(x, FakeTensor) or is_transformed()
    return x.device.type == "cpu" and not hidden


def full_precision(method: Callable) -> Callable:
    """A method of a prediction, computed in float32 or better whatever the autocast state."""

    @functools.wraps(method)
    def computed(self, pred: Tensor, *others, **options):
        pred = pred.to(torch.promote_types(pred.dtype, torch.float32))
        if not torch.is_autocast_enabled(pred.device.type):
            return method(self, pred, *others, **options)
        with torch.autocast(pred.device.type, enabled=False):
            return method(self, pred, *others, **options)

    return computed


def check_rows(pred: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The labels (N, D) and weights (N,) of predictions (N, W), checked, in the same precision."""
    if not len(target):
        raise ValueError("expected at least one row, got an empty batch")
    if target.requires_grad:
        raise ValueError(
            "the target requires a gradient, which the loss does not give: are pred and target "
            "swapped? The order is loss(pred, target). Otherwise pass target.detach()."
        )
    if weight is not None and weight.shape != target.shape[:1]:
        raise ValueError(f"expected weight (N,) = ({len(target)},), got {tuple(weight.shape)}")
    target, weight = target.to(pred.dtype), None if weight is None else weight.to(pred.dtype)
    if is_readable(target):
        check_numbers(target, weight)
    elif weight is not None:
        weight = torch.where(weight < 0, math.nan, weight)
    return target, weight


def check_numbers(target: Tensor, weight: Tensor | None = None) -> None:
    """Raise if a label (N, D) is not finite or the weights (N,) are none. Reads the numbers."""
    if not math.isfinite(target.sum().item()) and not torch.isfinite(target).all():
        bad = (~torch.isfinite(target)).flatten(1).any(-1).nonzero()[:, 0].tolist()
        raise ValueError(f"targets must be finite; rows {bad[:5]} are not. Mask them first.")
    if weight is None:
        return
    total, least = weight.sum(dtype=torch.float64).item(), weight.min().item()
    if not (total > 0 and math.isfinite(total)):
        raise ValueError(f"weights must sum to a positive number, got {total:g}")
    if least < 0:
        raise ValueError(f"weights must not be negative, got {least:g}")


def gather_rows(rows: Tensor) -> Tensor:
    """(n, D) of every rank -> (sum of n, D) in rank order, without gradient; each has its own n."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return rows
    world = distributed.get_world_size()
    if world == 1:
        return rows
    size = torch.tensor([len(rows)], device=rows.device)
    sizes = [torch.empty_like(size) for _ in range(world)]
    distributed.all_gather(sizes, size)
    padded = rows.new_zeros(int(max(sizes)), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in range(world)]
    distributed.all_gather(parts, padded)
    return torch.cat([part[: int(n)] for part, n in zip(parts, sizes, strict=True)])


def samples(rows: Tensor, weight: Tensor | None) -> Tensor:
    """The rows (N, D), NaN where the weight (N,) is 0: that is no sample of p_train."""
    return rows if weight is None else rows.where((weight > 0)[:, None], math.nan)
