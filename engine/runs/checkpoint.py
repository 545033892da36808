"""Checkpoints: written whole or not at all, and read without running code.

Writing goes through `datasets.io.files.whole`, so that kill -9 or a full disk leaves the old one.
Reading unpickles tensors and plain containers only (`weights_only=True`), so a checkpoint from
elsewhere cannot run code.
"""

import io
import zipfile
from pathlib import Path
from typing import Any

import torch

from datasets.io.files import atomic_write
from models.released import read_plain

FORMAT = "balanced-regression checkpoint 1"


def write(path: Path, content: dict[str, Any]) -> None:
    """Save a checkpoint; on failure the previous one is kept, and the error says so."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **content}, buffer)
    with atomic_write(path) as file:
        file.write(buffer.getbuffer())


def read(path: Path) -> dict[str, Any]:
    """A checkpoint that `write` made; anything else is an error that names the file."""
    try:
        content = read_plain(path)
    except ValueError as error:
        raise ValueError(f"{error} If it is this run's own, rerun=true trains it again.") from error
    _check_sums(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = (
            sorted(map(str, content))[:5] if isinstance(content, dict) else type(content).__name__
        )
        raise ValueError(
            f"{path}: expected a checkpoint of this engine, found {found}. A released checkpoint "
            "is read by models.released.load, or scripts/evaluate.py released=<file>."
        )
    return content


def _check_sums(path: Path) -> None:
    """Compare the checksums of the zip file that a checkpoint is, which torch itself does not."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except zipfile.BadZipFile:
        damaged = "all of it"
    if damaged is not None:
        raise ValueError(
            f"{path}: damaged ({damaged} does not match its checksum). Start the same command with "
            "rerun=true, which trains it again."
        )
