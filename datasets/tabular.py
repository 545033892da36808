"""Regression tables in CSV files, as in antoniopedropi/Datasets-ImbalancedRegression.

The label is the first column by default; text is a category. N: rows; F: inputs.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metrics.columns import MISSING, is_number, numeric, read

FEWEST = 20  # rows with a label
LARGEST = 1e37  # of a label: trees and networks compute in float32


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
    present = np.array([cell.lower() not in MISSING for cell in cells])
    values = np.zeros(len(cells))
    if all(is_number(cell) for cell in cells[present]):
        values[present] = cells[present].astype(float)
        present &= np.isfinite(values)
        values[~present] = np.median(values[present]) if present.any() else 0.0
        return values
    return np.unique(np.where(present, cells, ""), return_inverse=True)[1].astype(float)
