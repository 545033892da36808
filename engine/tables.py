"""A table is data: rows, columns, mean and spread over seeds, and the published value beside each.

    {"rows": {row: {column: {"mean", "std", "seeds", "paper"}}},
     "meta": {"commit", "command", "machine", "seconds", "versions"}}

It is kept as JSON, and written from that as Markdown, CSV and LaTeX; no number is typed by hand.
"""

import csv
import io
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine.checkpoint import whole

PACKAGES = ("torch", "torchvision", "numpy", "lightning-fabric", "scikit-learn")
FORMATS = ("md", "csv", "tex", "json")


def cell(values: Sequence[float], paper: float | None = None) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds; one seed has no spread."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    mean = sum(finite) / len(finite) if finite else None
    std = None
    if mean is not None and len(finite) > 1:
        std = math.sqrt(sum((value - mean) ** 2 for value in finite) / (len(finite) - 1))
    return {"mean": mean, "std": std, "seeds": len(finite), "paper": paper}


def meta(seconds: float | None = None) -> dict[str, Any]:
    """Where numbers come from: commit, command, machine, versions."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "command": " ".join(["python", *sys.argv]),
        "machine": f"{platform.system()} {platform.machine()}, {_processor()}",
        "seconds": None if seconds is None else round(seconds, 1),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}},
    }


def render(table: Mapping[str, Any], form: str = "md") -> str:
    """The table as Markdown, CSV, LaTeX or JSON text."""
    if form == "json":
        return json.dumps(table, indent=2) + "\n"
    rows = table["rows"]
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    if form == "csv":
        return _csv(rows, columns)
    grid = [[row, *(_text(cells.get(c), form) for c in columns)] for row, cells in rows.items()]
    head = ["", *columns]
    if form == "md":
        lines = [head, ["---", *["---:"] * len(columns)], *grid]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    if form == "tex":
        body = [" & ".join(line).replace("_", r"\_") + r" \\" for line in [head, *grid]]
        rules = [r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule"]
        return "\n".join(
            [rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", *rules, r"\end{tabular}", ""]
        )
    raise ValueError(f"a table is written as {', '.join(FORMATS)}, got {form!r}")


def write(table: Mapping[str, Any], folder: Path, name: str) -> list[Path]:
    """Write <folder>/<name>.{md,csv,tex,json}; each file is whole or not there."""
    paths = [Path(folder) / f"{name}.{form}" for form in FORMATS]
    for path, form in zip(paths, FORMATS, strict=True):
        with whole(path) as file:
            file.write(render(table, form).encode())
    return paths


def _text(entry: Mapping[str, Any] | None, form: str) -> str:
    """`12.66 ± 0.05 (12.69)`: ours, the spread, the paper's in brackets."""
    if entry is None or (entry["mean"] is None and entry["paper"] is None):
        return "-" if form == "md" else "--"
    text = "-" if entry["mean"] is None else _number(entry["mean"])
    if entry["std"] is not None:
        text += (" ± " if form == "md" else r" $\pm$ ") + _number(entry["std"])
    return text if entry["paper"] is None else f"{text} ({_number(entry['paper'])})"


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def _csv(rows: Mapping[str, Any], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "mean", "std", "seeds", "paper"])
    for row, cells in rows.items():
        for column in (column for column in columns if column in cells):
            entry = cells[column]
            writer.writerow([row, column, *(entry[k] for k in ("mean", "std", "seeds", "paper"))])
    return text.getvalue()


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
