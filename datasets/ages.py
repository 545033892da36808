"""Faces and ages: IMDB-WIKI-DIR, AgeDB-DIR and UTKFace-DIR are one class and three CSV files.

A CSV has the columns age, path, split: the age in years, the image's path below the data folder,
and train, val or test. It is checked once, when it is read; errors name the file and the line.
S is the side of the image in pixels, N the number of images of a split.
"""

import csv as csv_format
import hashlib
import io
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from datasets.io import images, store
from datasets.io.files import atomic_write
from datasets.io.manifest import manifest

COLUMNS = ("age", "path", "split")
SPLITS = ("train", "val", "test")
MAX_AGE = 200  # IMDB-WIKI-DIR itself goes up to 186


class Row(NamedTuple):
    line: int
    age: float
    path: str
    split: str


class AgeDataset(Dataset):
    """{"input": (3, S, S) float32 in [-1, 1], "target": (1,) float32 years, "meta": {"index": i}}.

    `augment` (random crop with padding S / 14, mirror) is for the train split only unless said
    otherwise. With a packed store (`pack`) the image files themselves are not needed; where they
    are there, they must be those that were packed. No image of over `max_pixels` is decoded.
    """

    def __init__(
        self,
        csv: str | Path,
        root: str | Path,
        split: str,
        size: int,
        augment: bool | None = None,
        store: str | Path | None = None,
        max_pixels: int = images.MAX_PIXELS,
    ):
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}.")
        rows = read_csv(csv)
        chosen = [(number, row) for number, row in enumerate(rows) if row.split == split]
        if not chosen:
            found = dict(Counter(row.split for row in rows))
            raise ValueError(
                f"{csv}: expected rows with split {split!r}, got {found or 'no rows at all'}. Make "
                f"the splits with scripts/prepare_age.py."
            )
        self.size, self.max_pixels = size, max_pixels
        self.augment = split == "train" if augment is None else augment
        self.padding = round(size / 14)  # 16 at 224 px
        self.labels = np.array([[row.age] for _, row in chosen], np.float32)  # (N, 1)
        self._numbers = [number for number, _ in chosen]
        self._store = open_store(store, csv, root, size) if store is not None else None
        self._files = (
            [] if self._store is not None else locate(csv, root, [row for _, row in chosen])
        )

    @classmethod
    def labels_of(cls, split: str, csv: str | Path, **_: Any) -> np.ndarray:
        """(N, 1) ages of a split, from the CSV alone; other settings are not looked at."""
        return np.array([[row.age] for row in read_csv(csv) if row.split == split], np.float32)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        image = self.image(index)
        if self.augment:
            image = images.augment(image, self.padding)
        return {
            "input": images.to_tensor(image),
            "target": torch.tensor(self.labels[index]),
            "meta": {"index": index},
        }

    def image(self, index: int) -> np.ndarray:
        """(S, S, 3) uint8 RGB, before augmentation."""
        if self._store is None:
            file = self._files[index]
            return images.decode(images.read_bytes(file), self.size, file, self.max_pixels)
        number = self._numbers[index]
        return images.decode(self._store[number], self.size, f"{self._store.path}, image {number}")

    @staticmethod
    def fingerprint(
        content: bool,
        csv: str | Path,
        root: str | Path,
        size: int,
        store: str | Path | None = None,
        **_: Any,
    ) -> str:
        """Changes with the images, of all splits."""
        if not Path(csv).is_file():
            return "missing"
        if store is not None:
            return open_store(store, csv, root, size).digest
        files = (f"{root}/{row.path}" for row in read_csv(csv))
        return manifest(files, content, (csv_key(csv), str(root)))


def read_csv(csv: str | Path) -> list[Row]:
    """All rows of an age CSV, checked."""
    csv = Path(csv)
    if not csv.is_file():
        raise FileNotFoundError(f"{csv}: no such CSV. Make it with scripts/prepare_age.py.")
    try:
        return _rows(csv)
    except (UnicodeDecodeError, csv_format.Error) as error:
        raise ValueError(
            f"{csv}: expected text with the columns {', '.join(COLUMNS)}, got a file of another "
            f"kind ({type(error).__name__}). Make it with scripts/prepare_age.py overwrite=true."
        ) from None


def _rows(csv: Path) -> list[Row]:
    with csv.open(newline="", encoding="utf-8-sig") as file:
        reader = csv_format.reader(file)
        header = next(reader, [])
        if sorted(header) != sorted(COLUMNS):
            missing, extra = set(COLUMNS) - set(header), set(header) - set(COLUMNS)
            raise ValueError(
                f"{csv}: expected the columns {', '.join(COLUMNS)}; got {_short(header)} "
                f"(missing: {sorted(missing)}, extra: [{_short(sorted(extra))}]). A pandas index "
                f"is left out with to_csv(..., index=False)."
            )
        age, path, split = (header.index(name) for name in COLUMNS)
        rows = []
        for cells in reader:
            where = f"{csv}, line {reader.line_num}"
            if len(cells) != len(COLUMNS):
                raise ValueError(f"{where}: expected 3 cells, got {len(cells)}: {_short(cells)}.")
            _check(where, cells[age], cells[path], cells[split])
            rows.append(Row(reader.line_num, float(cells[age]), cells[path], cells[split]))
    return rows


def _short(cells: Sequence[str]) -> str:
    """Cells as an error shows them; those of a file of another kind can be very long."""
    shown = repr(", ".join(cells))
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


def _check(where: str, age: str, path: str, split: str) -> None:
    try:
        years = float(age)
    except ValueError:
        years = math.nan
    if not 0 <= years <= MAX_AGE:
        raise ValueError(
            f"{where}: expected an age in 0..{MAX_AGE} years, got {age!r}. Fix the row."
        )
    if split not in SPLITS:
        raise ValueError(
            f"{where}: expected split {' or '.join(SPLITS)}, got {split!r}. Fix the row."
        )
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts:
        raise ValueError(
            f"{where}: expected a path below the data folder, got {path!r}, which leaves it. Paths "
            f"are relative to root and hold no '..'."
        )


def write_csv(
    csv: Path, ages: Sequence[float], paths: Sequence[str], splits: Sequence[str]
) -> None:
    """Write N ages, paths and splits in their order, checked as when read; whole or not at all."""
    for line, row in enumerate(zip(ages, paths, splits, strict=True), start=2):
        _check(f"{csv}, line {line} to be", str(row[0]), row[1], row[2])
    text = io.StringIO(newline="")
    writer = csv_format.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(
        (f"{age:g}", path, split) for age, path, split in zip(ages, paths, splits, strict=True)
    )
    with atomic_write(csv) as file:
        file.write(text.getvalue().encode())


def locate(csv: str | Path, root: str | Path, rows: Sequence[Row]) -> list[Path]:
    """The rows' files, each known to exist and to lie inside `root`, links followed.

    Every folder is listed once, which is faster than asking for 190,000 files one by one.
    """
    root = Path(root).resolve()
    listings: dict[Path, dict[str, bool]] = {}
    files = []
    for row in rows:
        file = root / row.path
        if file.parent not in listings:
            listings[file.parent] = _listing(file.parent, root)
        inside = listings[file.parent].get(file.name)
        if inside is None:
            raise FileNotFoundError(
                f"{csv}, line {row.line}: no such image {file}. Unpack the images below {root}, or "
                f"take the row out of the CSV (scripts/prepare_age.py drop_missing=true)."
            )
        if not inside:
            raise ValueError(
                f"{csv}, line {row.line}: {row.path!r} is a link that leaves the data folder "
                f"{root}. Set root to the folder that really holds the images."
            )
        files.append(file)
    return files


def _listing(folder: Path, root: Path) -> dict[str, bool]:
    """The files of a folder (none if there is no folder), each with whether it is inside root."""
    if not folder.is_dir():
        return {}
    inside = folder.resolve().is_relative_to(root)
    with os.scandir(folder) as entries:
        return {
            entry.name: inside
            and (not entry.is_symlink() or Path(entry.path).resolve().is_relative_to(root))
            for entry in entries
            if entry.is_file()
        }


def open_store(path: str | Path, csv: str | Path, root: str | Path, size: int) -> store.Store:
    """The packed store at `path`, known to be made at this size from this CSV, and from the images
    that are there, if they are."""
    packed = store.Store(path, csv_key(csv), size)
    packed.check_sources([f"{root}/{row.path}" for row in read_csv(csv)])
    return packed


def pack(
    csv: str | Path,
    root: str | Path,
    path: str | Path,
    size: int,
    progress: store.Progress = iter,
    say: Callable[[str], None] = print,
    max_pixels: int = images.MAX_PIXELS,
) -> store.Store:
    """Pack the images of all splits of a CSV at S px; restartable."""
    files = locate(csv, root, read_csv(csv))
    return store.write(path, files, csv_key(csv), size, progress, say, max_pixels)


def csv_key(csv: str | Path) -> str:
    return hashlib.sha256(Path(csv).read_bytes()).hexdigest()
