"""JSON files of ours: written whole, with a checksum, and checked when they are read."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets.io.files import atomic_write

SUM = "checksum"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with the checksum of the rest of it."""
    plain = json.loads(json.dumps({k: v for k, v in content.items() if k != SUM}))
    with atomic_write(path) as file:
        file.write(json.dumps({**plain, SUM: _sum(plain)}, indent=2).encode() + b"\n")


def read(path: Path, advice: str) -> dict[str, Any]:
    """The object that `write` wrote, or an error that says what to do: `advice`.

    A file without a checksum, such as an older one, is taken as it is.
    """
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:  # cut off, or no text at all
        raise ValueError(f"{path}: expected JSON, got {error}. {advice}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {content!r:.40}. {advice}")
    found = content.pop(SUM, None)
    if found is not None and found != _sum(content):
        raise ValueError(f"{path}: it does not match its checksum, so it is damaged. {advice}")
    return content


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
