"""Per-sample errors: the first factor of a metric, before any grouping or averaging.

    label errors    e(pred, target)   (N,), (N,)           -> (N,)
    point errors    e(pred, target)   (N, P, 3), (N, P, 3) -> (N,)

Shapes: N samples (or pixels), P points (joints or vertices). Label errors trust their inputs, which
the reports have checked; point errors are called by users and check theirs.
"""

from typing import Any

import torch
from torch import Tensor

from .inputs import Array, paired_points


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
    p, t = paired_points(pred, target)
    return torch.linalg.vector_norm(p - t, dim=-1).mean(-1)


def pa_mpjpe(pred: Array, target: Array) -> Tensor:
    """min over (s, R, c) in squares, then mean_i |s R p_i + c - t_i|: (N, P, 3) twice -> (N,).

    Similarity Procrustes (Umeyama 1991): R is a rotation, so a reflection is not removed. The best
    translation is the one that centres both sides. A prediction whose points all coincide gives
    s = 0 / 0; every similarity then puts it on the target's centroid, as s = 0 does.
    """
    p, t = paired_points(pred, target)
    p, t = p - p.mean(1, keepdim=True), t - t.mean(1, keepdim=True)
    if len(p) == 0:
        return p.new_zeros(0)
    rotation, scale = _similarity(p, t)  # (N, 3, 3), (N,)
    scale = torch.nan_to_num(scale, nan=0.0, posinf=0.0, neginf=0.0)
    aligned = scale[:, None, None] * (p @ rotation.mT)  # (N, P, 3)
    return torch.linalg.vector_norm(aligned - t, dim=-1).mean(-1)


def _similarity(pred: Tensor, target: Tensor) -> Any:
    """The rotations (N, 3, 3) and scales (N,) that bring centred points nearest to the target's."""
    try:
        import roma
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("pa_mpjpe aligns points with roma: pip install roma") from error
    return roma.rigid_vectors_registration(pred, target, compute_scaling=True)
