"""Regression tables as CSV files, one a set, as the repository antoniopedropi/Datasets-Imbalanced
Regression has them: the label is the first column unless said otherwise, text is a category.

N: rows; F: inputs.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.io.columns import MISSING, is_number, read

FEWEST = 20  # rows with a label
LARGEST = 1e37  # of a label: trees and networks compute in float32


@dataclass(frozen=True)
class TabularSet:
    """inputs (N, F) and labels (N,) of one file."""

    name: str
    inputs: NDArray[np.float64]
    labels: NDArray[np.float64]


def load(path: Path, target: str | None = None, rows: int | None = None) -> TabularSet:
    """Categories become their rank in the alphabet, missing numbers the column's median; rows
    without a label are left out. rows: at most so many, drawn at random, always the same ones.
    """
    columns = read(path)
    name = next(iter(columns)) if target is None else target
    if name not in columns:
        raise ValueError(f"{path}: there is no column {name!r}; choose out of {', '.join(columns)}")
    cells = columns.pop(name)
    wrong = [c for c in cells if not is_number(c) and c.lower() not in MISSING]
    if wrong:
        raise ValueError(f"{path}: expected numbers in column {name!r}, got {wrong[0]!r}")
    labels = np.array([float(c) if is_number(c) else np.nan for c in cells])
    known = np.flatnonzero(~np.isnan(labels))
    if len(known) < FEWEST:
        raise ValueError(f"{path}: expected at least {FEWEST} rows with a label, got {len(known)}")
    if (peak := np.nanmax(np.abs(labels))) > LARGEST:
        raise ValueError(
            f"{path}: labels reach {peak:.0e}; give them in a unit below {LARGEST:.0e}"
        )
    if np.ptp(labels[known]) == 0:
        raise ValueError(f"{path}: all labels are {labels[known][0]:g}; nothing can be learnt")
    if not columns:
        raise ValueError(f"{path}: expected inputs beside the label {name!r}, got none")
    if rows is not None and len(known) > rows:
        known = np.sort(np.random.default_rng(0).choice(known, rows, replace=False))
    inputs = [_column(np.array(column)[known]) for column in columns.values()]
    return TabularSet(path.stem, np.stack(inputs, 1), labels[known])


def _column(cells: NDArray) -> NDArray[np.float64]:
    """(N,) numbers: as they are, or the rank of a category in the alphabet."""
    present = np.array([cell.lower() not in MISSING for cell in cells])
    values = np.zeros(len(cells))
    if all(is_number(cell) for cell in cells[present]):
        values[present] = cells[present].astype(float)
        present &= np.isfinite(values)
        values[~present] = np.median(values[present]) if present.any() else 0.0
        return values
    return np.unique(np.where(present, cells, ""), return_inverse=True)[1].astype(float)
