"""Style, colours and files of all figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from datasets.io.files import atomic_write

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "savefig.dpi": 160,
}
styled = mpl.rc_context(STYLE)  # decorator of a function that plots
# One per method in all figures, from colour-blind-safe palettes (Okabe and Ito; Tol). As in the
# paper's captions: oracle blue, least squares yellow, re-weighting green, ours red, test purple.
_ROWS = {
    "#0072B2": ("Oracle", "BNI"),
    "#E69F00": ("Vanilla", "SPIN-RT", "Plain"),
    "#009E73": ("Reweight", "RRT", "Inverse", "Vanilla+LDS", "Re-weighted"),
    "#56B4E9": ("RRT+LDS", "Inverse+LDS", "Train"),
    "#D55E00": ("GAI",),
    "#CC79A7": ("BMC", "Test"),
    "#882255": ("Balanced L1",),
    "#000000": ("Histogram",),
    "#332288": ("Plain + post-hoc",),
    "#44AA99": ("Plain + isotonic",),
}
_COLOURS = {row: shade for shade, rows in _ROWS.items() for row in rows}
TRAIN = "#BFD9EA"  # the training histogram in the background


def colour(name: str) -> str:
    """Return the colour of a row; "GAI (true noise)" has that of GAI."""
    return _COLOURS.get(name.split(" (")[0], "#555555")


def axis_behind(ax: Axes) -> Axes:
    """Return a second y axis behind `ax`, for the training histogram."""
    behind: Any = ax.twinx()
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    return behind


@styled
def save(figures: Mapping[str, Figure], folder: Path, prefix: str) -> list[Path]:
    """Write <folder>/<prefix>_<name>.png and .pdf; the same figure gives the same file."""
    written = []
    for name, figure in figures.items():
        stem = f"{prefix}_{name}" if prefix else name
        for form in ("png", "pdf"):
            path = folder / f"{stem}.{form}"
            undated = {"CreationDate": None} if form == "pdf" else {}
            with atomic_write(path) as file:
                figure.savefig(file, format=form, metadata=undated)
            written.append(path)
    return written
