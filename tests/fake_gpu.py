"""Move modules to a fake GPU, whose tensors have a device and a shape but no numbers."""

from typing import Any

import torch
from torch import nn


def on_gpu(value: torch.Tensor) -> torch.Tensor:
    strides: Any = value.size(), value.stride()
    return torch.empty_strided(*strides, dtype=value.dtype, device="cuda")


def move(module: nn.Module) -> None:
    """Every parameter and buffer to the fake GPU; to be called in the fake mode."""
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                part._parameters[name] = nn.Parameter(on_gpu(value), value.requires_grad)
        for name, value in part._buffers.items():
            part._buffers[name] = None if value is None else on_gpu(value)
