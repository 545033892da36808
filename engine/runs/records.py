"""JSON files with a checksum, written atomically and checked when they are read, and `meta`, the
provenance of the numbers in them."""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from datasets.io.files import atomic_write

SUM = "checksum"
CODE = (":/", ":!/results", ":!/README.md", ":!/docs")  # files that can change a number
GIT = ["git", "-C", str(Path(__file__).parent), "status", "--porcelain=2", "--branch"]
GIT += ["--untracked-files=no", "--", *CODE]
FOLDERS = r"(?<![\w.])/(?:[^\s/,=\]]+/)*([^\s/,=\]]+)"  # absolute path; its last name
PACKAGES = ("torch", "torchvision", "numpy", "lightning-fabric", "scikit-learn")


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with a checksum of its other entries. NaN becomes null."""
    text = json.dumps({k: v for k, v in content.items() if k != SUM})
    plain = json.loads(text, parse_constant=lambda _: None)
    text = json.dumps({**plain, SUM: digest(plain)}, indent=2)
    with atomic_write(path) as file:
        file.write(text.encode() + b"\n")


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


def meta(seconds: float | None = None) -> dict[str, Any]:
    """Return the commit, command, machine and versions behind a number."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)", info.read_text(), re.M) if info.is_file() else None
    processor = found[1] if found else platform.processor() or "unknown processor"
    try:
        done = subprocess.run(GIT, capture_output=True, text=True, timeout=10, check=True)
        lines = done.stdout.splitlines()
    except (OSError, subprocess.SubprocessError):  # no Git, or not in a clone
        lines = []
    heads = [line for line in lines if line.startswith("#")]
    commit = heads[0].split()[-1] if heads else None
    return {
        "commit": None if commit == "(initial)" else commit,  # a clone without a commit
        "changed": len(lines) > len(heads),
        "command": re.sub(FOLDERS, r".../\1", " ".join(["python", *sys.argv])),
        "machine": f"{platform.system()} {platform.machine()}, {processor}, {os.cpu_count()} cores",
        "seconds": None if seconds is None else round(seconds, 1),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}},
    }
