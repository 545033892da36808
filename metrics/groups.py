"""Groupings of samples: the second factor of a metric.

Ages, depths and similarities fall in label bins, and a bin belongs to a shot: many, medium, few, or
none. Meshes fall in regions of equal width in rarity, and the rarest samples form the tails.

Shapes: N samples (or pixels), B label bins, L training labels.
"""

import torch
from torch import Tensor

from .errors import Array, flat

SHOTS = ("many", "medium", "few")
SUFFIXES = ("", *(f"_{shot}" for shot in SHOTS))  # of the keys of a report
MANY, MEDIUM, FEW, NO_SHOT = 0, 1, 2, -1

MAX_AGE = 200

BINS_PER_METRE, DEPTH_BINS = 10, 100
DEPTH_MANY = (*range(9, 46), 47, 49)
DEPTH_MEDIUM = (7, 8, 46, 48, *range(50, 57), 58, 60, 61, 63)
DEPTH_FEW = (57, 59, 62, *range(64, 100))

SIMILARITY_BINS, MAX_SIMILARITY = 50, 5.0

REGIONS = 100
TAILS = (10, 5)  # per cent of the samples


def age_bins(age: Tensor) -> Tensor:
    """floor(age): (N,) -> (N,) int64 in 0..200.

    An age is a number of completed years, so 29.7 counts as 29; the public benchmarks hold only
    whole ages, which this leaves as they are.
    """
    outside = (age < 0) | (age > MAX_AGE)
    if outside.any():
        raise ValueError(
            f"ages must lie in 0..{MAX_AGE} years; got {float(age[outside][0]):g} "
            f"({int(outside.sum())} of {age.numel()} outside). Undo any label scaling first."
        )
    return age.floor().long()


def age_shots(train_labels: Array) -> Tensor:
    """Shot of each age by its number of training samples: (L,) -> (201,) int64.

    many: more than 100 samples; medium: 20 to 100; few: under 20, untrained ages included.
    """
    labels = flat("train_labels", train_labels)
    if labels.numel() == 0:
        raise ValueError(
            "train_labels must hold the training ages, which define the shots; got none."
        )
    return by_count(torch.bincount(age_bins(labels), minlength=MAX_AGE + 1), few_below=20)


def depth_bins(depth: Tensor) -> Tensor:
    """min(floor(10 depth), 99): metres (N,) -> (N,) int64 in 0..99.

    The product is taken in float32. Depth maps hold whole millimetres, often in float32, so many
    pixels sit on an edge: 0.7 m in float32 is 0.69999999, and only a product rounded to float32
    puts it (and every other whole millimetre up to 10 m) in the bin that starts there.
    """
    outside = depth <= 0
    if outside.any():
        raise ValueError(
            f"depths must be above 0 m; got {float(depth[outside][0]):g} ({int(outside.sum())} of "
            f"{depth.numel()} pixels). Mask out pixels without a measurement: mask=target > 0."
        )
    position = depth.clamp(max=DEPTH_BINS / BINS_PER_METRE).float() * BINS_PER_METRE
    return position.floor().long().clamp(max=DEPTH_BINS - 1)


def depth_shots() -> Tensor:
    """Shot of each 0.1 m bin of NYUD2-DIR: (100,) int64; bins under 0.7 m are in none."""
    shots = torch.full((DEPTH_BINS,), NO_SHOT)
    for shot, bins in ((MANY, DEPTH_MANY), (MEDIUM, DEPTH_MEDIUM), (FEW, DEPTH_FEW)):
        shots[list(bins)] = shot
    return shots


def similarity_bins(score: Tensor) -> Tensor:
    """Bin of width 0.1 of each score: (N,) -> (N,) int64 in 0..49.

    As in the released code, scores and edges are rounded to float32 before they are compared, so a
    score on an edge may fall on either side of it.
    """
    if ((score < 0) | (score > MAX_SIMILARITY)).any():
        raise ValueError(
            f"similarities must lie in 0..5; got {float(score.min()):g} to {float(score.max()):g}"
        )
    edges = torch.linspace(0, MAX_SIMILARITY, SIMILARITY_BINS + 1, dtype=torch.float64).float()
    bins = torch.searchsorted(edges, score.float().contiguous().cpu(), right=True) - 1
    return bins.clamp(max=SIMILARITY_BINS - 1).to(score.device)


def similarity_shots(train_labels: Array) -> Tensor:
    """Shot of each similarity bin: (L,) -> (50,) int64; gives the lists of the released code."""
    bins = similarity_bins(flat("train_labels", train_labels))
    return by_count(torch.bincount(bins, minlength=SIMILARITY_BINS), few_below=30)


def by_count(count: Tensor, few_below: int) -> Tensor:
    """Shot of each bin by its number of training samples: (B,) -> (B,)."""
    shots = torch.full_like(count, MEDIUM)
    shots[count > 100] = MANY
    shots[count < few_below] = FEW
    return shots


def shot_members(shots: Tensor) -> dict[str, Tensor]:
    """Bins of each group: (B,) -> key suffix ("", "_many", ...) to (B,) bool.

    The group of all bins, "", includes those that belong to no shot.
    """
    every = torch.ones_like(shots, dtype=torch.bool)
    return {"": every} | {f"_{name}": shots == shot for shot, name in enumerate(SHOTS)}


def rarity_regions(rarity: Tensor) -> Tensor:
    """int((d - min) / width - 0.001), width = (max - min) / 100: (N,) -> (N,) int64 in 0..99.

    The 0.001 keeps the largest rarity in the last region. Equal rarities share region 0.
    """
    low, high = rarity.min(), rarity.max()
    if low == high:
        return torch.zeros_like(rarity, dtype=torch.long)
    width = (high - low) / REGIONS
    return ((rarity - low) / width - 0.001).long().clamp(0, REGIONS - 1)


def rarest(rarity: Tensor, percent: int) -> Tensor:
    """Indices of the int(N percent / 100) largest rarities: (N,) -> (n,); ties: the first ones."""
    order = torch.argsort(rarity, descending=True, stable=True)
    return order[: len(rarity) * percent // 100]
