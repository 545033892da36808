"""Faces and ages: IMDB-WIKI-DIR, AgeDB-DIR, UTKFace-DIR and any CSV with the same columns.

A CSV has the columns age (years), path (of the image, below the data folder) and split (train, val
or test); others are ignored. S is the side of the image in pixels, N the number of images of a
split.
"""

import csv as csv_format
import functools
import hashlib
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from datasets.io import images
from datasets.io.files import MAX_PIXELS, atomic_write, locate, manifest, outside
from datasets.io.store import Store, write

COLUMNS = ("age", "path", "split")
SPLITS = ("train", "val", "test")
PREPARE = "scripts/prepare_age.py"
MAX_AGE = 200  # IMDB-WIKI-DIR itself goes up to 186


class Row(NamedTuple):
    line: int
    age: float
    path: str
    split: str


class AgeDataset(Dataset):
    """{"input": (3, S, S) float32 in [-1, 1], "target": (1,) float32 years, "meta": {"index": i}}.

    Arguments:
        csv, root: the CSV and the folder that its paths start from.
        split: train, val or test.
        size: S.
        augment: random crop with padding S / 14 and mirror; by default for the train split only.
        store: a packed store (`pack`), read instead of the image files.
        max_pixels: limit on the size of an image file.
    """

    def __init__(
        self,
        csv: str | Path,
        root: str | Path,
        split: str,
        size: int,
        augment: bool | None = None,
        store: str | Path | None = None,
        max_pixels: int = MAX_PIXELS,
    ):
        if split not in SPLITS:
            raise ValueError(f"Unknown split {split!r}; choose from {', '.join(SPLITS)}.")
        rows = read_csv(csv, root)
        self.numbers = [number for number, row in enumerate(rows) if row.split == split]
        chosen = [rows[number] for number in self.numbers]
        if not chosen:
            found = f"{dict(Counter(row.split for row in rows))}. Write them into the column split,"
            advice = f"or let {PREPARE} split a CSV without it; it needs three images of an age."
            raise ValueError(f"{csv}: expected rows with split {split!r}, got {found} {advice}")
        self.size, self.max_pixels = size, max_pixels
        self.augment = split == "train" if augment is None else augment
        self.padding = round(size / 14)  # 16 at 224 px
        self.labels = np.array([[row.age] for row in chosen], np.float32)  # (N, 1)
        self.store = None if store is None else open_store(store, csv, root, size)
        self.files = image_files(csv, root, chosen) if store is None else []

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.store is None:
            source, data = self.files[index], images.read_bytes(self.files[index])
        else:
            number = self.numbers[index]
            source, data = f"{self.store.path}, image {number}", self.store[number]
        image = images.decode(data, self.size, source, self.max_pixels)
        if self.augment:
            image = images.augment(image, self.padding)
        target = torch.tensor(self.labels[index])
        return {"input": images.to_tensor(image), "target": target, "meta": {"index": index}}

    @classmethod
    def labels_of(cls, split: str, csv: str | Path, root: str | Path, **_: Any) -> np.ndarray:
        """(N, 1) ages of a split, without reading images."""
        rows = read_csv(csv, root)
        return np.array([[row.age] for row in rows if row.split == split], np.float32)

    @staticmethod
    def fingerprint(
        content: bool,
        csv: str | Path,
        root: str | Path,
        size: int,
        store: str | Path | None = None,
        **_: Any,
    ) -> str:
        """Return a digest of the images of all splits."""
        if not Path(csv).is_file():
            return "missing"
        if store is not None:
            return open_store(store, csv, root, size).digest
        files = (f"{root}/{row.path}" for row in read_csv(csv, root))
        return manifest(files, content, (csv_key(csv), str(root)))


def read_csv(
    csv: str | Path, root: str | Path | None = None, needs_split: bool = True
) -> list[Row]:
    """Return the rows of an age CSV, checked; without a split column every split is empty.

    root: the data folder, by default that of the CSV.
    """
    csv = Path(csv)
    if not csv.is_file():
        raise FileNotFoundError(f"{csv}: no such CSV. Make it with {PREPARE}.")
    folder = csv.parent if root is None else Path(root)
    return _read(csv, folder, COLUMNS if needs_split else COLUMNS[:2], csv_key(csv))


@functools.lru_cache(maxsize=2)  # 200,000 rows take more than a second
def _read(csv: Path, folder: Path, needed: Sequence[str], key: str) -> list[Row]:
    """Read an age CSV whose content has this key; each split and the fingerprint need it."""
    with csv.open(newline="", encoding="utf-8-sig") as file:
        return _rows(csv, file, folder, needed)


def _rows(csv: Path, file: IO[str], folder: Path, needed: Sequence[str]) -> list[Row]:
    folders, rows = (folder.absolute(), folder.resolve()), []
    reader = csv_format.DictReader(file)
    columns = ", ".join(needed)
    try:
        header = reader.fieldnames or []
        if not set(needed) <= set(header):
            got = f"got {', '.join(header)!r:.80}. Name them so, separated by commas"
            raise ValueError(f"{csv}: expected the columns {columns}; {got}.")
        if twice := [name for name in COLUMNS if header.count(name) > 1]:
            advice = "Remove or rename the others"
            raise ValueError(f"{csv}: expected one column {twice[0]}, got several. {advice}.")
        for cells in reader:
            where = f"{csv}, line {reader.line_num}"
            if None in cells:
                raise ValueError(f"{where}: expected {len(header)} cells, got more.")
            cells = {name: cells[name] or "" for name in COLUMNS if name in header}
            if cells["path"].startswith("/"):
                cells["path"] = _below(Path(cells["path"]), folders)
            for name, (expected, holds) in CHECKS.items():
                if name in cells and not holds(cells[name]):
                    raise ValueError(f"{where}: expected {expected}, got {cells[name]!r}.")
            age, path, split = float(cells["age"]), cells["path"], cells.get("split", "")
            rows.append(Row(reader.line_num, age, path, split))
    except (UnicodeDecodeError, csv_format.Error) as error:
        got = f"a file of another kind ({type(error).__name__}). Save it as CSV in UTF-8"
        raise ValueError(f"{csv}: expected text with the columns {columns}, got {got}.") from None
    if not rows:
        raise ValueError(f"{csv}: expected rows, got none.")
    if bad := next((row for row in rows if outside(row.path)), None):
        expected = f"expected a path below the data folder, got {bad.path!r}"
        raise ValueError(f"{csv}, line {bad.line}: {expected}.")
    return rows


def _below(path: Path, folders: Sequence[Path]) -> str:
    """Return an absolute path relative to the first of the folders that it lies below."""
    for folder in folders:
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return str(path)


def _is_age(text: str) -> bool:
    try:
        return 0 <= float(text) <= MAX_AGE
    except ValueError:
        return False


CHECKS = {  # {column: (expected, whether a cell is that)}
    "age": (f"an age in 0..{MAX_AGE} years", _is_age),
    "split": (f"split {' or '.join(SPLITS)}", SPLITS.__contains__),
}


def write_csv(
    csv: Path, ages: Sequence[float], paths: Sequence[str], splits: Sequence[str]
) -> None:
    """Write N ages, paths and splits atomically, with the checks of `read_csv`."""
    text = io.StringIO(newline="")
    writer = csv_format.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((f"{a:g}", p, s) for a, p, s in zip(ages, paths, splits, strict=True))
    text.seek(0)
    _rows(csv, text, csv.parent, COLUMNS)
    with atomic_write(csv) as file:
        file.write(text.getvalue().encode())


def image_files(csv: str | Path, root: str | Path, rows: Sequence[Row]) -> list[Path]:
    """Return the rows' files, checked to exist inside `root`."""
    paths = [row.path for row in rows]
    return locate(Path(root), paths, lambda i: f"{csv}, line {rows[i].line}", inside=True)


def open_store(path: str | Path, csv: str | Path, root: str | Path, size: int) -> Store:
    """Open a packed store, checked against this size, CSV and the image files that exist."""
    packed = Store(path, csv_key(csv), size)
    packed.check_sources([f"{root}/{row.path}" for row in read_csv(csv, root)])
    return packed


def pack(csv: str | Path, root: str | Path, path: str | Path, size: int, **options: Any) -> Store:
    """Pack the images of all splits of a CSV at S px; options: see `datasets.io.store.write`."""
    return write(path, image_files(csv, root, read_csv(csv, root)), csv_key(csv), size, **options)


def csv_key(csv: str | Path) -> str:
    return hashlib.sha256(Path(csv).read_bytes()).hexdigest()
