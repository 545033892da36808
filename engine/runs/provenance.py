"""Provenance of numbers: the commit, the command, the machine and the versions."""

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

CODE = (":/", ":!/results", ":!/README.md", ":!/docs")  # files that can change a number
FOLDERS = r"(?<![\w.])/(?:[^\s/,=\]]+/)*([^\s/,=\]]+)"  # absolute path; its last name
PACKAGES = ("torch", "torchvision", "numpy", "lightning-fabric", "scikit-learn")


def meta(seconds: float | None = None) -> dict[str, Any]:
    """Return the commit, command, machine and versions behind a number."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)", info.read_text(), re.M) if info.is_file() else None
    processor = found[1] if found else platform.processor() or "unknown processor"
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no", "--", *CODE)),
        "command": re.sub(FOLDERS, r".../\1", " ".join(["python", *sys.argv])),
        "machine": f"{platform.system()} {platform.machine()}, {processor}, {os.cpu_count()} cores",
        "seconds": None if seconds is None else round(seconds, 1),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}},
    }


def _git(*arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
