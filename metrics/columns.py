"""Columns of a CSV file, separated by comma, semicolon or tab, with or without a header."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MISSING = {"", "na", "nan", "null", "none", "?"}


def read(path: Path) -> dict[str, list[str]]:
    """Return {name: cells}; without a header (a first line of numbers) the names are 0, 1, ..."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    if path.is_dir():
        raise ValueError(f"{path}: expected a CSV file, got a folder.")
    try:
        text = path.read_text(encoding="utf-8-sig")
        mark = max(",;\t", key=text.split("\n", 1)[0].count)
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        message = f"{path}: expected a CSV file in UTF-8, got other bytes ({error})."
        raise ValueError(message) from None
    if not rows:
        raise ValueError(f"{path}: expected a header and at least one row, got an empty file.")
    bare = all(is_number(cell) for cell in rows[0])
    names = [str(i) for i in range(len(rows[0]))] if bare else [cell.strip() for cell in rows[0]]
    rows = rows if bare else rows[1:]
    if not rows:
        raise ValueError(f"{path}: expected at least one row below the header, got none.")
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"{path}: expected each column once, got {twice[0]!r} twice.")
    for number, row in enumerate(rows, 1 if bare else 2):
        if len(row) != len(names):
            expected = f"expected {len(names)} columns, got {len(row)}"
            raise ValueError(f"{path}, line {number}: {expected}.")
    return {name: [row[i].strip() for row in rows] for i, name in enumerate(names)}


def numbers(path: Path, column: str | None = None) -> NDArray[np.float64]:
    """(N,) numbers of a column, NaN if missing; None: the only column."""
    columns = read(path)
    if column is None and len(columns) > 1:
        listed = ", ".join(columns)
        raise ValueError(f"{path}: it has {len(columns)} columns; name one as column: {listed}.")
    return numeric(path, columns, next(iter(columns)) if column is None else str(column))


def training_labels(path: Path, target: str) -> NDArray[np.float64]:
    """(L,) labels of the column `target`, or of the only column, without missing ones."""
    found = numbers(path, target if target in read(path) else None)
    return found[~np.isnan(found)]


def numeric(path: Path, columns: Mapping[str, list[str]], name: str) -> NDArray[np.float64]:
    """(N,) numbers of a named column, NaN if missing."""
    if name not in columns:
        raise ValueError(f"{path}: unknown column {name!r}; choose from {', '.join(columns)}.")
    cells = columns[name]
    texts = [cell for cell in cells if not (is_number(cell) or is_missing(cell))]
    if texts:
        found = f"{len(texts)} cells are not, such as {texts[0]!r}"
        raise ValueError(f"{path}: expected numbers in column {name!r}; {found}.")
    return np.array([float(cell) if is_number(cell) else np.nan for cell in cells])


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_missing(cell: str) -> bool:
    return cell.lower() in MISSING
