"""Regression tables in CSV files, as in antoniopedropi/Datasets-ImbalancedRegression.

The label is the first column by default; text is a category. N: rows; F: inputs.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from metrics.columns import is_missing, is_number, numeric, read

FEWEST = 20  # rows with a label
LARGEST = 1e37  # of a label: trees and networks compute in float32
FOLDS = {"test": [0], "val": [1], "train": [2, 3, 4]}  # fifths of the rows

Numbers = NDArray[np.float64]


def load(path: Path, target: str | None = None, rows: int | None = None) -> tuple[Numbers, Numbers]:
    """Return inputs (N, F) and labels (N,) of a table, without the rows that have no label.

    Categories become their alphabetical rank, missing numbers the column's median. rows: at most so
    many, sampled with a fixed seed.
    """
    columns = read(path)
    name = next(iter(columns)) if target is None else target
    labels = numeric(path, columns, name)
    del columns[name]
    known = np.flatnonzero(~np.isnan(labels))
    if len(known) < FEWEST:
        raise ValueError(f"{path}: expected at least {FEWEST} rows with a label, got {len(known)}.")
    if (peak := np.nanmax(np.abs(labels))) > LARGEST:
        raise ValueError(
            f"{path}: labels reach {peak:.0e}; use a unit in which they are below {LARGEST:.0e}."
        )
    if np.ptp(labels[known]) == 0:
        raise ValueError(f"{path}: all labels are {labels[known][0]:g}; expected different ones.")
    if not columns:
        raise ValueError(f"{path}: expected inputs next to the label {name!r}, got none.")
    if rows is not None and len(known) > rows:
        known = np.sort(np.random.default_rng(0).choice(known, rows, replace=False))
    inputs = [_column(np.array(column)[known]) for column in columns.values()]
    return np.stack(inputs, 1), labels[known]


def _column(cells: NDArray) -> Numbers:
    """(N,) numbers, or the alphabetical ranks of categories."""
    present = np.array([not is_missing(cell) for cell in cells])
    values = np.zeros(len(cells))
    if all(is_number(cell) for cell in cells[present]):
        values[present] = cells[present].astype(float)
        present &= np.isfinite(values)
        values[~present] = np.median(values[present]) if present.any() else 0.0
        return values
    return np.unique(np.where(present, cells, ""), return_inverse=True)[1].astype(float)


class VectorDataset(Dataset):
    """Samples in memory: `inputs` (N, F) and `labels` (N, 1), which a subclass sets."""

    inputs: torch.Tensor
    labels: NDArray[np.float32]

    def __init__(self, split: str, splits: Iterable[str], augment: bool):
        if augment:
            raise ValueError("These inputs cannot be augmented; set features.augment=false.")
        if split not in splits:
            raise ValueError(f"Unknown split {split!r}; choose from {', '.join(splits)}.")

    @classmethod
    def labels_of(cls, split: str, **settings: Any) -> NDArray[np.float32]:
        """(N, 1)."""
        return cls(split=split, **settings).labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        target = torch.from_numpy(self.labels[index])
        return {"input": self.inputs[index], "target": target, "meta": {"index": index}}


class TableDataset(VectorDataset):
    """A split of a table: inputs (F,), standardised by the training split, and labels (N, 1).

    A fifth of the rows, evenly along the sorted labels, is for validation, another for the test.

    Arguments:
        csv: the file; target, rows: see `load`.
        scale: labels from 0 to `scale` instead of their own unit; null: their unit.
        seed: of the splits.
    """

    def __init__(
        self,
        csv: str | Path,
        split: str,
        target: str | None = None,
        rows: int | None = None,
        scale: float | None = None,
        seed: int = 0,
        augment: bool = False,
    ):
        super().__init__(split, FOLDS, augment)
        inputs, labels = load(Path(csv), target, rows)
        if scale is not None:
            labels = (labels - labels.min()) / np.ptp(labels) * scale
        fold = stratified_folds(labels, 5, seed)
        train = inputs[np.isin(fold, FOLDS["train"])]
        spread = np.where(np.ptp(train, 0) > 0, train.std(0), 1)
        own = np.isin(fold, FOLDS[split])
        self.labels = labels[own].astype(np.float32)[:, None]
        standardised = (inputs[own] - train.mean(0)) / spread
        self.inputs = torch.from_numpy(standardised.astype(np.float32))


def stratified_folds(labels: NDArray, folds: int, seed: int) -> NDArray[np.int64]:
    """(N,) the fold of each label; each run of `folds` sorted labels has one label in each fold."""
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(len(labels)), labels))
    shuffled = [rng.permutation(folds) for _ in range(0, len(labels), folds)]
    return np.concatenate(shuffled)[np.argsort(order)]
