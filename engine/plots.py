"""How our figures look, and how they are written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from engine.files import whole

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "savefig.dpi": 160,
}
TRAIN = "#BFD9EA"  # the training histogram, behind a plot


def save(figures: Mapping[str, Figure], folder: Path, prefix: str) -> list[Path]:
    """<folder>/<prefix>_<name>.png and .pdf; the same figure gives the same file."""
    written = []
    for name, figure in figures.items():
        for form in ("png", "pdf"):
            path = folder / f"{prefix}_{name}.{form}"
            undated = {"CreationDate": None} if form == "pdf" else {}
            with whole(path) as file:
                figure.savefig(file, format=form, metadata=undated)
            written.append(path)
    return written
