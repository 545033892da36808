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
GIT = ["git", "-C", str(Path(__file__).parent), "status", "--porcelain=2", "--branch"]
GIT += ["--untracked-files=no", "--", *CODE]
FOLDERS = r"(?<![\w.])/(?:[^\s/,=\]]+/)*([^\s/,=\]]+)"  # absolute path; its last name
PACKAGES = ("torch", "torchvision", "numpy", "lightning-fabric", "scikit-learn")


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
