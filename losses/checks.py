"""Bad batches get a clear error and nothing else.

Shapes and gradients are always checked. What only the numbers tell (labels that are not finite,
weights that are negative or sum to nothing) is checked where looking costs nothing: on the CPU, in
plain calls. On a GPU a look would make Python wait for the device in every step, and torch.compile
and torch.func have no numbers to look at; there such a batch makes the loss NaN, and
`check_numbers(target, weight)` says why.

N: rows; D: label dimensions.
"""

import math

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._subclasses.fake_tensor import FakeTensor


def is_transformed() -> bool:
    """Whether torch.func (grad, vmap, jvp, ...) is at work; inside torch.compile, too."""
    return _functorch.get_dynamic_layer_stack_depth() > 0


def is_readable(x: Tensor) -> bool:
    """Whether x has numbers that Python can look at without waiting for a device."""
    return not (
        torch.compiler.is_compiling()
        or x.device.type != "cpu"
        or is_transformed()
        or isinstance(x, FakeTensor)
    )


def check_rows(target: Tensor, weight: Tensor | None) -> Tensor | None:
    """The weights (N,), checked, or None if there are none."""
    if not len(target):
        raise ValueError("expected at least one row, got an empty batch")
    if target.requires_grad:
        raise ValueError(
            "the target requires a gradient, which the loss does not give: are pred and target "
            "swapped? The order is loss(pred, target). Otherwise pass target.detach()."
        )
    if weight is not None and weight.shape != target.shape[:1]:
        raise ValueError(f"expected weight (N,) = ({len(target)},), got {tuple(weight.shape)}")
    if is_readable(target):
        check_numbers(target, weight)
    elif weight is not None:
        return torch.where(weight < 0, math.nan, weight)
    return weight


def check_numbers(target: Tensor, weight: Tensor | None = None) -> None:
    """Raise if a label (N, D) is not finite or the weights (N,) are none. Reads the numbers."""
    if not math.isfinite(target.sum().item()) and not torch.isfinite(target).all():
        bad = (~torch.isfinite(target)).reshape(len(target), -1).any(-1).nonzero()[:, 0].tolist()
        raise ValueError(
            f"targets must be finite; rows {bad[:5]} are not. Filter or mask them first."
        )
    if weight is None:
        return
    total, least = weight.sum(dtype=torch.float64).item(), weight.min().item()
    if not (total > 0 and math.isfinite(total)):
        raise ValueError(f"weights must sum to a positive number, got {total:g}")
    if least < 0:
        raise ValueError(f"weights must not be negative, got {least:g}")
