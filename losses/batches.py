"""Checks of a batch before the loss, and the batch of all ranks.

Shapes and gradients are always checked. Values (labels that are not finite, weights that are
negative or sum to zero) are checked in ordinary calls on the CPU. On a GPU the check would
synchronise the device in every step, and torch.compile and torch.func have no values to read.
There such a batch makes the loss NaN, and `check_numbers` finds the reason.

N: samples; D: label dimensions; W: the likelihood's width.
"""

import math

import torch
from torch import Tensor, distributed
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._subclasses.fake_tensor import FakeTensor


def is_transformed() -> bool:
    """Return whether torch.func (grad, vmap, jvp, ...) is active, inside torch.compile too."""
    return _functorch.get_dynamic_layer_stack_depth() > 0


def is_readable(x: Tensor) -> bool:
    """Return whether Python can read the values of x without synchronising a device."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or isinstance(x, FakeTensor):
        return False
    return _functorch.get_dynamic_layer_stack_depth() == 0


def double(x: Tensor) -> Tensor:
    """Return x in float64, where the device has it."""
    return x if x.device.type == "mps" else x.double()


def check_samples(
    pred: Tensor, target: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the labels (N, D) and weights (N,) of predictions (N, W), checked, in their dtype."""
    if not len(target):
        raise ValueError("Expected at least one sample, got an empty batch.")
    if target.requires_grad:
        raise ValueError(
            "The target requires a gradient, but the loss has none for it. The order is "
            "loss(pred, target): are they swapped? Otherwise pass target.detach()."
        )
    if weight is not None and weight.shape != target.shape[:1]:
        raise ValueError(f"Expected weight (N,) = ({len(target)},), got {tuple(weight.shape)}.")
    target, weight = target.to(pred.dtype), None if weight is None else weight.to(pred.dtype)
    if is_readable(target):
        check_numbers(target, weight)
    elif weight is not None:
        weight = torch.where(weight < 0, math.nan, weight)
    return target, weight


def check_numbers(target: Tensor, weight: Tensor | None = None) -> None:
    """Raise if a label (N, D) is not finite, or a weight (N,) is negative or their sum is zero."""
    if not math.isfinite(target.sum().item()) and not torch.isfinite(target).all():
        bad = (~torch.isfinite(target)).flatten(1).any(-1).nonzero()[:, 0].tolist()
        raise ValueError(f"Targets must be finite; samples {bad[:5]} are not. Mask them first.")
    if weight is None:
        return
    total, least = weight.sum(dtype=torch.float64).item(), weight.min().item()
    if not (total > 0 and math.isfinite(total)):
        raise ValueError(f"Weights must sum to a positive number, got {total:g}.")
    if least < 0:
        raise ValueError(f"Weights must not be negative, got {least:g}.")


def gather(local: Tensor) -> Tensor:
    """(n, D) of every rank -> (sum of n, D) in rank order, without gradient; n may differ."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return local
    world = distributed.get_world_size()
    size = torch.tensor([len(local)], device=local.device)
    sizes = [torch.empty_like(size) for _ in range(world)]
    distributed.all_gather(sizes, size)
    padded = local.new_zeros(int(max(sizes)), *local.shape[1:])
    padded[: len(local)] = local
    shards = [torch.empty_like(padded) for _ in range(world)]
    distributed.all_gather(shards, padded)
    return torch.cat([shard[: int(n)] for shard, n in zip(shards, sizes, strict=True)])


def samples(values: Tensor, weight: Tensor | None) -> Tensor:
    """Return values (N, D) with NaN where the weight (N,) is 0: no sample of p_train."""
    return values if weight is None else values.where((weight > 0)[:, None], math.nan)


def residuals(
    pred: Tensor, target: Tensor, weight: Tensor | None, all_ranks: bool
) -> tuple[Tensor, Tensor]:
    """Return the residuals (N, D) around their mean, NaN for samples that are not finite or have
    no weight, and whether there are at least two others.
    """
    residual = samples((target - pred).float(), weight)
    residual = residual.where(residual.isfinite().all(-1, keepdim=True), math.nan)
    residual = gather(residual) if all_ranks else residual
    return residual - residual.nanmean(0), (~residual[:, 0].isnan()).sum() > 1
