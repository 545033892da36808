"""Per-sample errors, the first factor of a metric, and the checks of their inputs.

    label errors    e(pred, target)   (N,), (N,)           -> (N,)
    point errors    e(pred, target)   (N, P, 3), (N, P, 3) -> (N,)

Inputs are torch or NumPy and are checked once, by the reports and by the point errors; label errors
expect finite float64 tensors.

Shapes: N samples (or pixels), P points (joints or vertices).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = Tensor | NDArray[Any] | Sequence[float]


def absolute(pred: Tensor, target: Tensor) -> Tensor:
    """|p - t|"""
    return (pred - target).abs()


def squared(pred: Tensor, target: Tensor) -> Tensor:
    """(p - t)^2"""
    return (pred - target).square()


def log_absolute(pred: Tensor, target: Tensor) -> Tensor:
    """log |p - t|, whose mean is the log of the geometric mean; -inf for an exact prediction."""
    return (pred - target).abs().log()


def relative(pred: Tensor, target: Tensor) -> Tensor:
    """|p - t| / t"""
    return (pred - target).abs() / target


def log10(pred: Tensor, target: Tensor) -> Tensor:
    """|log10 p - log10 t|; +inf for p <= 0, the limit from above."""
    return (pred.clamp(min=0).log10() - target.log10()).abs()


def within_ratio(pred: Tensor, target: Tensor, power: int) -> Tensor:
    """1 where max(p / t, t / p) <= 1.25^power, else 0; written as products so that p <= 0 fails."""
    bound = 1.25**power
    return ((pred <= bound * target) & (target <= bound * pred)).to(target.dtype)


def mean_distance(pred: Array, target: Array) -> Tensor:
    """mean_i |p_i - t_i|: (N, P, 3), (N, P, 3) -> (N,).

    MPVPE on vertices, MPJPE on root-centred joints, and the rarity of a sample when `pred` is its
    ground-truth mesh and `target` the mean mesh, expanded to N.
    """
    p, t = _paired_points(pred, target)
    return torch.linalg.vector_norm(p - t, dim=-1).mean(-1)


def pa_mpjpe(pred: Array, target: Array) -> Tensor:
    """min over (s, R, c) in squares, then mean_i |s R p_i + c - t_i|: (N, P, 3) twice -> (N,).

    Similarity Procrustes (Umeyama 1991): R is a rotation, so a reflection is not removed. The best
    translation is the one that centres both sides. A prediction whose points all coincide gives
    s = 0 / 0; every similarity then puts it on the target's centroid, as s = 0 does.
    """
    try:
        import roma
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("pa_mpjpe needs roma: pip install roma") from error
    p, t = _paired_points(pred, target)
    p, t = p - p.mean(1, keepdim=True), t - t.mean(1, keepdim=True)
    if len(p) == 0:
        return p.new_zeros(0)
    fit: Any = roma.rigid_vectors_registration(p, t, compute_scaling=True)
    rotation, scale = fit  # (N, 3, 3), (N,)
    scale = torch.nan_to_num(scale, nan=0.0, posinf=0.0, neginf=0.0)
    aligned = scale[:, None, None] * (p @ rotation.mT)  # (N, P, 3)
    return torch.linalg.vector_norm(aligned - t, dim=-1).mean(-1)


def _paired_points(pred: Array, target: Array) -> tuple[Tensor, Tensor]:
    """Check two (N, P, 3) and return them in float64 on one device."""
    p, t = as_float64(pred), as_float64(target)
    if p.ndim != 3 or p.shape[-1] != 3 or p.shape[1] == 0 or p.shape != t.shape:
        got = f"{tuple(p.shape)} and {tuple(t.shape)}. Reshape or expand them first."
        raise ValueError(f"pred and target must both be (N, points, 3); got {got}")
    return require_finite("pred", p), require_finite("target", t.to(p.device))


def as_float64(values: Array) -> Tensor:
    """Return a float64 tensor of the same shape and device, without gradient."""
    if isinstance(values, Tensor):
        return values.detach().to(torch.float64)
    return torch.from_numpy(np.array(values, dtype=np.float64))  # a copy: arrays may be read-only


def flat(name: str, values: Array) -> Tensor:
    """Return (N,) finite numbers; other axes have length one."""
    found = as_float64(values)
    if sum(n != 1 for n in found.shape) > 1:
        got = f"{tuple(found.shape)}; report each dimension on its own"
        raise ValueError(f"{name} must be (N,) or (N, 1), one number per sample, got {got}.")
    return require_finite(name, found.flatten())


def paired(pred: Array, target: Array, mask: Array | None = None) -> tuple[Tensor, Tensor]:
    """Return two arrays of one shape as two (N,), restricted to where the mask is true."""
    p = as_float64(pred)
    t = as_float64(target).to(p.device)
    require_same_shape("pred", p, "target", t)
    keep = slice(None)
    if mask is not None:
        m = as_float64(mask).to(p.device)
        require_same_shape("mask", m, "target", t)
        keep = m.flatten() != 0
    p, t = p.flatten()[keep], t.flatten()[keep]
    return require_finite("pred", p), require_finite("target", t)


def labelled(pred: Array, target: Array) -> Tensor:
    """(N,), (N,) -> (N, 2), each prediction next to its label."""
    require_same_shape("pred", as_float64(pred), "target", as_float64(target))
    p = flat("pred", pred)
    return torch.stack([p, flat("target", target).to(p.device)], 1)


def require_same_shape(name: str, a: Tensor, other: str, b: Tensor) -> None:
    """Axes of length one do not count: (N,) agrees with (N, 1), but (2, 3) not with (6,)."""
    if [n for n in a.shape if n != 1] != [n for n in b.shape if n != 1]:
        got = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"{name} and {other} must agree in shape, up to axes of 1; got {got}.")


def require_finite(name: str, values: Tensor) -> Tensor:
    """Return the same tensor, or raise an error with the number of NaN and infinite values."""
    bad = int(values.numel() - values.isfinite().sum())
    if bad:
        raise ValueError(
            f"{name} must be finite; {bad} of {values.numel()} values are NaN or infinite. "
            "Mask out missing labels; a non-finite prediction means that the model diverged."
        )
    return values
