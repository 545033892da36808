"""Does `diagnose` foresee the gain of balancing? Predicted against measured gain, over all
benchmarks and tables.

    predicted    gain on held-out predictions, fitted on one half and measured on the other:
                 of Theorem 1's curve, and of the best monotone map (losses/diagnosis/leverage.py)
    measured     gain of the post-hoc row and of the isotonic row on the test set

Both in percent of the plain model's balanced error.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from engine.tables.plots import colour, save, styled
from engine.tables.report.summary import Measurement, measurements

KINDS = {"theorem": "post-hoc", "gain": "isotonic"}  # key of a leverage: part of a row's name
LIMITS = (-45, 30)  # percent; a gain outside is plotted on the edge


class Point(NamedTuple):
    """One plain model: name of its benchmark ("" for a table), predicted and measured gain."""

    name: str
    kind: str
    predicted: float
    measured: float


def points(known: Sequence[Measurement], results: Path) -> Iterator[Point]:
    """Yield the gains of every stored result that has a leverage."""
    for one in known:
        found = json.loads((results / f"{one.name}.json").read_text()).get("leverage", {})
        plain = one.means.get(one.best["baseline"] or "")
        for kind, part in KINDS.items():
            row = f"Plain + {part}"
            if row in found and row in one.means and plain:
                predicted = sum(run[kind] for run in found[row]) / len(found[row])
                yield Point(one.name, kind, 100 * predicted, 100 * (1 - one.means[row] / plain))
    path = results / "tabular.json"
    sets = json.loads(path.read_text())["sets"] if path.is_file() else {}
    for of_set in (one for one in sets.values() if "leverage" in one):
        errors: Any = {method: sum(e["bmae"]) for method, e in of_set["errors"].items()}
        for kind, part in KINDS.items():
            measured = 1 - errors[f"L2 + {part} (trees)"] / errors["L2 (trees)"]
            yield Point("", kind, 100 * of_set["leverage"][kind], 100 * measured)


@styled
def plot(found: list[Point]) -> Figure:
    """Plot one panel for each kind; tables are dots, benchmarks are named."""
    figure = Figure((8, 3.9), layout="constrained")
    titles = "Theorem 1's curve", "best monotone map"
    for ax, kind, title in zip(figure.subplots(1, 2), KINDS, titles, strict=True):
        own = [point for point in found if point.kind == kind]
        rank: Any = spearmanr([p.predicted for p in own], [p.measured for p in own])
        ax.axhline(0, color="#BBBBBB", linewidth=0.8)
        ax.axline((0, 0), slope=1, color="#BBBBBB", linewidth=0.8, linestyle="--")
        tables = [p for p in own if not p.name]
        shade = colour(f"Plain + {KINDS[kind]}")
        xy = np.clip([(p.predicted, p.measured) for p in tables], *LIMITS).T
        look: Any = {"s": 10, "alpha": 0.5, "clip_on": False}
        if tables:
            ax.scatter(*xy, color=shade, label=f"{len(tables)} tables (trees)", **look)
        for p in own:
            if p.name:
                ax.plot(p.predicted, p.measured, "D", color="black", markersize=4)
                left = p.predicted > LIMITS[1] / 2  # of its diamond, or the name is cut off
                shift: Any = {
                    "xytext": (-5 if left else 5, 3),
                    "ha": "right" if left else "left",
                }
                shift["textcoords"] = "offset points"
                ax.annotate(p.name, (p.predicted, p.measured), fontsize=7, **shift)
        ax.set(xlim=LIMITS, ylim=LIMITS, ylabel="measured gain in bMAE (%)")
        ax.set(xlabel="gain predicted on held-out data (%)")
        ax.set_title(f"{title}: rank correlation {rank.statistic:.2f} (n = {len(own)})")
        ax.legend(fontsize=7, loc="lower right")
    return figure


def write(results: Path) -> list[Path]:
    """Write figures/leverage.png and .pdf, if any result has a leverage."""
    found = list(points(measurements(), results))
    return save({"leverage": plot(found)}, results / "figures", "") if found else []
