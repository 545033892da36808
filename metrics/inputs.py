"""What callers hand in, checked once at the boundary: torch or NumPy in, finite float64 out.

Shapes: N samples (or pixels), P points (joints or vertices).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

Array = Tensor | np.ndarray | Sequence[float]


def as_float64(values: Array) -> Tensor:
    """Any shape -> the same shape in float64, without gradient, on the device it came from."""
    if isinstance(values, Tensor):
        return values.detach().to(torch.float64)
    return torch.from_numpy(np.array(values, dtype=np.float64))  # a copy: arrays may be read-only


def flat(name: str, values: Array) -> Tensor:
    """(N,) or (N, 1) or any shape -> (N,), finite."""
    return require_finite(name, as_float64(values).flatten())


def paired(pred: Array, target: Array, mask: Array | None = None) -> tuple[Tensor, Tensor]:
    """Two arrays of one shape, up to axes of length one -> two (N,), where the mask is true."""
    p, t = as_float64(pred), as_float64(target)
    require_same_shape("pred", p, "target", t)
    if mask is not None:
        m = as_float64(mask)
        require_same_shape("mask", m, "target", t)
        keep = m.flatten() != 0
        p, t = p.flatten()[keep.to(p.device)], t.flatten()[keep.to(t.device)]
    p, t = p.flatten(), t.flatten().to(p.device)  # (N,)
    return require_finite("pred", p), require_finite("target", t)


def paired_points(pred: Array, target: Array) -> tuple[Tensor, Tensor]:
    """Two (N, P, 3) -> the same two, finite, on one device."""
    p, t = as_float64(pred), as_float64(target)
    if p.ndim != 3 or p.shape[-1] != 3 or p.shape[1] == 0 or p.shape != t.shape:
        raise ValueError(
            f"pred and target must both be (N, points, 3); got {tuple(p.shape)} and "
            f"{tuple(t.shape)}. Reshape or expand them first."
        )
    return require_finite("pred", p), require_finite("target", t.to(p.device))


def require_same_shape(name: str, a: Tensor, other: str, b: Tensor) -> None:
    """(N,) agrees with (N, 1); (2, 3) agrees with neither (3, 2) nor (6,)."""
    if [n for n in a.shape if n != 1] != [n for n in b.shape if n != 1]:
        raise ValueError(
            f"{name} and {other} must agree in shape, up to axes of length one; got "
            f"{tuple(a.shape)} and {tuple(b.shape)}. Give one {name} value per {other} value."
        )


def require_finite(name: str, values: Tensor) -> Tensor:
    """Any shape -> the same tensor, or an error that counts the NaN and infinite values."""
    bad = int(values.numel() - values.isfinite().sum())
    if bad:
        raise ValueError(
            f"{name} must be finite; {bad} of {values.numel()} values are NaN or infinite. "
            "Mask out missing labels; a non-finite prediction means that the model diverged."
        )
    return values
