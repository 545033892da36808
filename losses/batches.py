"""Checks of a batch before the loss and of the numbers of a prior, the batch of all ranks, and the
gradient of a learned scale.

Shapes and gradients are always checked. Values (labels that are not finite, weights that are
negative or sum to zero) are checked in ordinary calls on the CPU. On a GPU the check would
synchronise the device in every step, and torch.compile and torch.func have no values to read.
There such a batch makes the loss NaN, and `check_numbers` finds the reason.

N: samples; D: label dimensions; W: the likelihood's width.
"""

import math
import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.nn.utils.stateless import _reparametrize_module

PASSES = 10  # backward passes that add to the learned scale's gradient before a warning
EVEN = 1.001  # ratio up to which bins have equal widths: edges may be rounded


def is_transformed() -> bool:
    """Return whether torch.func (grad, vmap, jvp, ...) is active, inside torch.compile too."""
    return torch._C._are_functorch_transforms_active()


def is_readable(x: Tensor) -> bool:
    """Return whether Python can read the values of x without synchronising a device."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or isinstance(x, FakeTensor):
        return False
    return not torch._C._are_functorch_transforms_active()


def double(x: Tensor) -> Tensor:
    """Return x in float64, where the device has it."""
    return x if x.device.type == "mps" else x.double()


def check_tensors(*given: Any) -> None:
    """Raise if something else is given, such as an array or a list."""
    if not all(isinstance(x, Tensor) for x in given):
        kinds = " and ".join(type(x).__name__ for x in given)
        raise TypeError(f"Expected tensors, got {kinds}; use torch.as_tensor(...).")


def check_samples(
    pred: Tensor, target: Tensor, weight: Tensor | None, mean: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return the labels (N, D) and weights (N,) of predictions (N, W), checked, in their dtype.
    Without a mean, all weights may be zero.
    """
    if target.shape[0] == 0:
        raise ValueError("Expected at least one sample, got an empty batch.")
    if target.requires_grad:
        raise ValueError(
            "The target requires a gradient, but the loss has none for it. The order is "
            "loss(pred, target): are they swapped? Otherwise pass target.detach()."
        )
    if weight is not None and not isinstance(weight, Tensor):
        raise TypeError(f"Expected weight as a tensor, got {type(weight).__name__}.")
    if weight is not None and weight.shape != target.shape[:1]:
        raise ValueError(f"Expected weight (N,) = ({len(target)},), got {tuple(weight.shape)}.")
    target, weight = target.to(pred.dtype), None if weight is None else weight.to(pred.dtype)
    if weight is not None:  # a sample of weight 0 may have no label, or a huge number in its place
        ignored = (weight == 0)[:, None]
        if weight.requires_grad:  # its gradient is the loss of the sample
            ignored = ignored & ~target.isfinite()
        target = target.masked_fill(ignored, 0.0)
    if is_readable(target):
        if weight is not None or not math.isfinite(target.sum().item()):
            check_numbers(target, weight, mean)
    elif weight is not None:
        weight = torch.where(weight < 0, math.nan, weight)
    return target, weight


def check_numbers(target: Tensor, weight: Tensor | None = None, mean: bool = True) -> None:
    """Raise if a label (N, D) is not finite, or a weight (N,) is negative or, of a mean, their sum
    is zero.
    """
    if not torch.isfinite(target).all():
        bad = (~torch.isfinite(target)).flatten(1).any(-1).nonzero()[:, 0].tolist()
        raise ValueError(
            f"Targets must be finite; samples {bad[:5]} are not. Give them weight 0; if only some "
            "dimensions are missing, use one loss per dimension."
        )
    if weight is None:
        return
    total, least = weight.sum(dtype=torch.float64).item(), weight.min().item()
    if not math.isfinite(total) or total < 0 or (mean and total == 0):
        raise ValueError(f"Weights must sum to a positive number, got {total:g}.")
    if least < 0:
        raise ValueError(f"Weights must not be negative, got {least:g}.")


def has_ranks() -> bool:
    """Return whether torch.distributed is initialised."""
    return distributed.is_available() and distributed.is_initialized()


def gather(local: Tensor) -> Tensor:
    """(n, D) of every rank -> (sum of n, D) in rank order, with gradient; n may differ."""
    if not has_ranks():
        return local
    from torch.distributed.nn.functional import all_gather  # not in every build of torch

    sizes = [int(n) for n in all_gather(torch.tensor(len(local), device=local.device))]
    shards = all_gather(functional.pad(local, (0, 0, 0, max(sizes) - len(local))))
    return torch.cat([shard[:n] for shard, n in zip(shards, sizes, strict=True)])


def skip(local: Tensor) -> Tensor | int:
    """Return how many rows of `gather` to skip to reach those of this rank, (n, D)."""
    if not has_ranks():
        return 0
    rank = distributed.get_rank()
    return (gather(torch.full_like(local[:, :1], rank)) < rank).sum()


def samples(values: Tensor, weight: Tensor | None) -> Tensor:
    """Return values (N, D) with NaN where the weight (N,) is 0: no sample of p_train."""
    return values if weight is None else values.where((weight > 0)[:, None], math.nan)


def learned_scale(loss: Any, pred: Tensor) -> Any:
    """Return the context in which a loss with a learned scale is computed. There the scale's
    gradient is averaged over ranks: DDP does so only for parameters of the wrapped module, where a
    second average changes nothing.
    """
    if loss.training and loss.likelihood._parameters:
        check_optimiser(loss, pred)
    if not (loss.training and has_ranks() and torch.is_grad_enabled()) or is_transformed():
        return nullcontext()
    from torch.distributed.nn.functional import all_reduce  # not in every build of torch

    values = {}
    for name, parameter in loss.likelihood.named_parameters():
        if parameter.requires_grad:
            mean = all_reduce(parameter) / distributed.get_world_size()
            values[name] = parameter.detach() + (mean - mean.detach())
    return _reparametrize_module(loss.likelihood, values)


def check_optimiser(loss: Any, pred: Tensor) -> None:
    """Warn once if the learned scale's gradient is never cleared, while that of the model is: no
    optimiser has it. Versions count the backward passes, without reading from a device.
    """
    if torch.compiler.is_compiling() or is_transformed() or not pred.requires_grad:
        return
    name, scale = next(iter(loss.likelihood._parameters.items()))
    if loss.warned or not (scale.requires_grad and scale.is_leaf) or scale.grad is None:
        return
    passes, nearest = scale.grad._version, _nearest_parameter(pred)
    added = -1 if nearest is None or nearest.grad is None else nearest.grad._version
    if nearest is None or passes < PASSES or 2 * added >= passes:
        return
    loss.warned = True
    warnings.warn(
        f"The gradient of the model was cleared, that of the learned {name} of "
        f"{type(loss).__name__} never: no optimiser has it. Add "
        f'{{"params": loss.parameters(), "lr": 1e-2}} to the optimiser\'s groups, or use a '
        f"fixed {name}.",
        stacklevel=4,
    )


def _nearest_parameter(pred: Tensor) -> Tensor | None:
    """Return the parameter of the model that is nearest to its predictions."""
    node: Any = pred.grad_fn
    while node is not None and not hasattr(node, "variable"):
        node = next((before for before, _ in node.next_functions if before is not None), None)
    return None if node is None else node.variable


def as_array(values: Any) -> NDArray[np.float64]:
    """Return a copy of a tensor of any type and device, of an array, a column or a list."""
    values = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else values
    return np.array(values, dtype=np.float64)


def numbers(values: Any) -> Tensor:
    """Return a copy in float32 or better: float64 for integers and Python's numbers."""
    x = values.detach().clone() if isinstance(values, Tensor) else torch.as_tensor(np.array(values))
    least = torch.float32 if x.is_floating_point() else torch.float64
    return x.to(torch.promote_types(x.dtype, least))


def normalised(weights: Any, name: str) -> Tensor:
    """Return (K,) weights that sum to one, in float32 or better."""
    known = isinstance(weights, Tensor | list | tuple)
    w = torch.as_tensor(weights if known else np.array(weights)).detach().clone()
    w = w.to(torch.promote_types(w.dtype, torch.float32))
    if w.ndim != 1 or not torch.isfinite(w).all() or (w < 0).any() or not w.sum() > 0:
        raise ValueError(
            f"{name} must be (K,) finite, non-negative and sum to a positive number, got shape "
            f"{tuple(w.shape)} with sum {w.sum().item():.6g}."
        )
    return w / w.sum()


def even(widths: Tensor) -> Tensor:
    """Return the widths (K,) of bins, or ones if they are equal up to rounding."""
    return torch.ones_like(widths) if widths.max() <= EVEN * widths.min() else widths


def is_single(values: Tensor, apart: Tensor) -> bool:
    """Return whether float32 moves no value by more than 3e-6 of their least distance `apart`."""
    off = (values.double() - values.float().double()).abs().max().item()
    return off <= 3e-6 * (apart.min().item() if len(apart) else math.inf)


def one_dimension(width: int, dims: int) -> int:
    """Return the width of a likelihood for labels of one dimension, or raise."""
    if dims != 1:
        raise ValueError(f"Classes and bins are one-dimensional labels, got {dims} dimensions.")
    return width
