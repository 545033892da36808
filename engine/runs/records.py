"""JSON files with a checksum: written atomically, checked when they are read."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets.io.files import atomic_write

SUM = "checksum"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with a checksum of its other entries. NaN becomes null."""
    text = json.dumps({k: v for k, v in content.items() if k != SUM})
    plain = json.loads(text, parse_constant=lambda _: None)
    with atomic_write(path) as file:
        file.write(json.dumps({**plain, SUM: digest(plain)}, indent=2).encode() + b"\n")


def read(path: Path, advice: str) -> dict[str, Any]:
    """Return an object that `write` wrote; errors end with the advice. A checksum is optional."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}. {advice}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {content!r:.40}. {advice}")
    found = content.pop(SUM, None)
    if found is not None and found != digest(content):
        raise ValueError(f"{path}: damaged, its checksum does not match. {advice}")
    return content


def digest(content: Any, by_class: bool = False) -> str:
    """Return 16 hex digits of a hash; by_class: of the targets without their modules."""
    text = json.dumps(content, sort_keys=True, default=str)
    if by_class:
        text = re.sub(r'("_target_": ")(?:[a-z_0-9]+\.)+', r"\1", text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
