"""JSON files with a checksum: written atomically, checked when they are read."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets.io.files import atomic_write

SUM = "checksum"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with a checksum of its other entries."""
    plain = json.loads(json.dumps({k: v for k, v in content.items() if k != SUM}))
    with atomic_write(path) as file:
        file.write(json.dumps({**plain, SUM: _sum(plain)}, indent=2).encode() + b"\n")


def read(path: Path, advice: str) -> dict[str, Any]:
    """Return an object that `write` wrote; errors end with the advice. A checksum is optional."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}. {advice}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {content!r:.40}. {advice}")
    found = content.pop(SUM, None)
    if found is not None and found != _sum(content):
        raise ValueError(f"{path}: damaged, its checksum does not match. {advice}")
    return content


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
