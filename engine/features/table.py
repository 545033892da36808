"""Table of cached features: memory-mapped .npy arrays in one folder per split.

    features.npy (V, N, ...)            V augmented views of N images
    target.npy, mask.npy (V, N, ...)    an augmentation may change the label too (a mirrored pose)
    about.json                          SHA-256 of each array; written last

Epoch e of a head's training reads view e mod V instead of running the backbone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from engine.training.batches import Key


class FeatureTable(Dataset):
    """Cached split. Given the keys (epoch, index) of a batch, returns the collated batch.

    Arguments:
        folder: the finished table.
        rows: the images of the table that make up the split; all of them by default.
        resident: hold the view of the current epoch in memory; otherwise read batch by batch.
    """

    def __init__(self, folder: Path, rows: Sequence[int] | None = None, resident: bool = True):
        self.arrays = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
        self.views, size = self.arrays["features"].shape[:2]
        self.rows = np.arange(size) if rows is None else np.asarray(rows)
        self.resident, self.view = resident, -1
        self.tensors: dict[str, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, keys: Sequence[Key]) -> dict[str, Any]:
        view, index = keys[0][0] % self.views, torch.tensor([index for _, index in keys])
        if not self.resident:
            batch = self._read(view, self.rows[index.numpy()])
        else:
            if view != self.view:
                self.tensors, self.view = self._read(view, self.rows), view
            batch = {name: tensor[index] for name, tensor in self.tensors.items()}
        return {"input": batch.pop("features").float(), **batch, "meta": {"index": index}}

    def _read(self, view: int, rows: Any) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array[view][rows]) for name, array in self.arrays.items()}
