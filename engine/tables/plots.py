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
# One per method in all figures, from colour-blind-safe palettes (Okabe and Ito; Tol). As in the
# paper's captions: oracle blue, least squares yellow, re-weighting green, ours red, test purple.
_COLOURS = {
    "Oracle": "#0072B2",
    "Vanilla": "#E69F00",
    "SPIN-RT": "#E69F00",
    "Reweight": "#009E73",
    "RRT": "#009E73",
    "Inverse": "#009E73",
    "Vanilla+LDS": "#009E73",
    "RRT+LDS": "#56B4E9",
    "Inverse+LDS": "#56B4E9",
    "GAI": "#D55E00",
    "BMC": "#CC79A7",
    "BNI": "#0072B2",
    "Balanced L1": "#882255",
    "Histogram": "#000000",
    "Plain": "#E69F00",
    "Re-weighted": "#009E73",
    "Plain + post-hoc": "#332288",
    "Plain + isotonic": "#44AA99",
    "Train": "#56B4E9",
    "Test": "#CC79A7",
}
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


def save(figures: Mapping[str, Figure], folder: Path, prefix: str) -> list[Path]:
    """Write <folder>/<prefix>_<name>.png and .pdf; the same figure gives the same file."""
    written = []
    for name, figure in figures.items():
        stem = f"{prefix}_{name}" if prefix else name
        for form in ("png", "pdf"):
            path = folder / f"{stem}.{form}"
            undated = {"CreationDate": None} if form == "pdf" else {}
            with mpl.rc_context(STYLE), atomic_write(path) as file:
                figure.savefig(file, format=form, metadata=undated)
            written.append(path)
    return written
