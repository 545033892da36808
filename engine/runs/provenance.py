"""Where a number comes from: the commit, the command, the machine and the versions behind it."""

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

CODE = (":/", ":!/results", ":!/README.md", ":!/docs")  # what makes a number, not what it is in
PACKAGES = ("torch", "torchvision", "numpy", "lightning-fabric", "scikit-learn")


def meta(seconds: float | None = None) -> dict[str, Any]:
    """Where numbers come from: commit, command, machine, versions."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no", "--", *CODE)),
        "command": without_places(" ".join(["python", *sys.argv])),
        "machine": f"{platform.system()} {platform.machine()}, {_processor()}",
        "seconds": None if seconds is None else round(seconds, 1),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}},
    }


def without_places(command: str) -> str:
    """A command whose absolute paths keep only their last name: nobody else has those folders."""
    return re.sub(r"(?<![\w.])/(?:[^\s/,=\]]+/)*([^\s/,=\]]+)", r".../\1", command)


def _git(*arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    """The processor's name where the system tells it, and the number of cores."""
    name = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        name = lines[0].split(":", 1)[1].strip() if lines else name
    return f"{name or 'unknown processor'}, {os.cpu_count()} cores"
