"""Protocols: label ranges that a model never sees, for benchmarks with labels (N, 1).

    extrapolation   labels above a quantile of the training labels
    interpolation   labels in a gap, in shares of the label range
    blind_spot      labels in random ranges that do not overlap

The ranges are removed from the training and validation splits, also in stage 1. The test split and
its metrics stay the same; `errors` adds those inside and outside the removed ranges.

A fourth protocol, `held_out`, removes no labels: stage 2 trains on a random share of the training
samples, and stage 1 on the others, so that stage 2 sees features that the backbone has not fitted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

Range = tuple[float, float]  # both ends included


def removed_ranges(protocol: Mapping[str, Any], labels: NDArray) -> list[Range]:
    """Return the ranges that a protocol removes, given all training labels (N, 1)."""
    if labels.ndim != 2 or labels.shape[1] != 1:
        raise ValueError(f"A protocol needs one label per sample, (N, 1); got {labels.shape}.")
    kind, (low, high) = protocol["kind"], (float(labels.min()), float(labels.max()))
    if kind == "extrapolation":
        return [(float(np.nextafter(np.quantile(labels, protocol["above"]), np.inf)), np.inf)]
    if kind == "interpolation":
        return [tuple(low + protocol[end] * (high - low) for end in ("first", "last"))]
    count, width = protocol["count"], protocol["width"] * (high - low)
    if (free := high - low - count * width) < 0:
        raise ValueError(f"{count} ranges of {protocol['width']} do not fit; lower protocol.width.")
    # Sorted positions in the free length, each moved by the ranges before it, never overlap.
    starts = np.sort(np.random.default_rng(protocol["seed"]).uniform(0, free, count))
    starts += low + width * np.arange(count)
    return [(float(start), float(start + width)) for start in starts]


def inside(labels: NDArray, ranges: Sequence[Range]) -> NDArray[np.bool_]:
    """(N, 1) -> (N,): whether a label lies in one of the ranges."""
    return np.any([(low <= labels[:, 0]) & (labels[:, 0] <= high) for low, high in ranges], axis=0)


def kept(
    protocol: Mapping[str, Any], split: str, made: Any, labels: NDArray, second_stage: bool
) -> Any:
    """Return a split without what the protocol removes; labels: of the whole training split."""
    if protocol["kind"] == "held_out":
        if split != "train":
            return made
        held_out = np.random.default_rng(protocol["seed"]).random(len(made)) < protocol["share"]
        return Kept(made, held_out == second_stage, labels, "samples of the other stage removed")
    ranges = removed_ranges(protocol, labels)
    listed = ", ".join(f"{low:.4g} to {high:.4g}" for low, high in ranges)
    if not inside(labels, ranges).any():
        raise ValueError(f"The protocol removes no training label: none is in {listed}.")
    return Kept(made, ~inside(made.labels, ranges), labels, f"labels {listed} removed", ranges)


class Kept(Dataset):
    """The samples of a dataset that a protocol keeps, (N,) whether each is, numbered from 0.

    all_labels: the training labels of the whole dataset, which define the shots of the metrics.
    """

    def __init__(
        self,
        dataset: Any,
        keep: NDArray[np.bool_],
        all_labels: NDArray,
        about: str,
        ranges: Sequence[Range] = (),
    ):
        self.dataset, self.ranges, self.all_labels = dataset, list(ranges), all_labels
        self.rows = np.flatnonzero(keep)
        if len(self.rows) < 2:
            raise ValueError(f"The protocol leaves {len(self.rows)} of {len(dataset)} samples.")
        self.labels = dataset.labels[self.rows]
        gone = len(dataset) - len(self.rows)
        self.about = f"{about}: {gone:,} of {len(dataset):,} samples"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = self.dataset[int(self.rows[index])]
        return item | {"meta": item["meta"] | {"index": index}}


def errors(pred: NDArray, target: NDArray, ranges: Sequence[Range]) -> dict[str, float]:
    """Return the mean and root mean square errors inside and outside the ranges, NaN if empty."""
    away, gone = np.abs(pred - target)[:, 0].astype(float), inside(target, ranges)
    found = {}
    for name, group in (("removed", away[gone]), ("kept", away[~gone])):
        found[f"mae_{name}"] = float(group.mean()) if len(group) else float("nan")
        found[f"rmse_{name}"] = float(np.sqrt((group**2).mean())) if len(group) else float("nan")
    return found
