"""Forest plot over all benchmarks: how far the best losses are from the references, in percent.

    relative difference = 100 (mean of the row - mean of the reference) / mean of the reference

Both 95% intervals (intervals.py) are divided by the same mean; negative is better.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from engine.tables.plots import STYLE, save
from engine.tables.report.summary import KINDS, REFERENCES, Measurement, measurements, metric

LIMITS = (-45.0, 20.0)  # percent; what lies outside is written at the edge
LOOKS = {  # colour-blind-safe, Okabe and Ito
    "paper": ("#D55E00", "o"),
    "ours": ("#0072B2", "s"),
    "posthoc": ("#009E73", "D"),
}
SEEDS: Any = {"linewidth": 3.2, "solid_capstyle": "butt"}
IMAGES: Any = {"linewidth": 1.1}
GREY = "#555555"


def relative(one: Measurement, row: str, reference: str) -> dict[str, Any]:
    """Return {"mean", "seeds", "images", "verdict"} of a difference in percent of the reference,
    negative is better."""
    found = one.difference(row, reference)
    scale = 100 / abs(one.means[reference]) * (1 if one.column.better == "lower" else -1)
    ends = {
        key: found[key] and sorted(scale * x for x in found[key]) for key in ("seeds", "images")
    }
    return {**found, **ends, "mean": scale * found["mean"]}


def plot(ax: Axes, y: float, found: Mapping[str, Any], kind: str) -> None:
    """Plot one comparison: thick line over seeds, thin line over test images."""
    (colour, marker), mean = LOOKS[kind], found["mean"]
    if not LIMITS[0] <= mean <= LIMITS[1]:
        low, high = found["seeds"] or (np.nan, np.nan)
        text = f"◀ {mean:.0f}%  [{low:.0f}, {high:.0f}]".replace("-", "\N{MINUS SIGN}")
        ax.text(LIMITS[0] + 0.5, y, text, color=colour, va="center", fontsize=7.5)
        return
    for key, offset, style in (("seeds", -0.14, SEEDS), ("images", 0.22, IMAGES)):
        if found[key] is not None:
            ax.plot(np.clip(found[key], *LIMITS), [y + offset] * 2, color=colour, **style)
    face = colour if found["verdict"] in ("ahead", "behind") else "white"
    ax.plot(mean, y, marker, color=colour, markerfacecolor=face, markersize=4.5, zorder=3)


def forest(found: Sequence[Measurement]) -> Figure:
    """Plot the best loss of the paper, of ours and post-hoc against plain loss and re-weighting."""
    lines, labels, y = [], [], -0.4  # (y, measurement, kind, or None for the title); text
    for one in found:
        name = "" if one.name == one.benchmark["name"] else f", {one.name}"
        title = f"{one.benchmark['title']}{name} ({metric(one.column.title, one.column)})"
        for kind, label in [(None, title), *((kind, one.best[kind]) for kind in LOOKS)]:
            if label is not None:
                y += 1 if kind else 0.4
                lines.append((y, one, kind))
                labels.append(label)
        y += 1
    with mpl.rc_context(STYLE):
        figure = Figure((9.5, 1.2 + 0.25 * y))
        axes = figure.subplots(1, 2, sharey=True)
        for ax, reference in zip(axes, REFERENCES, strict=True):
            ax.set(xlim=LIMITS, ylim=(y - 0.2, -0.7))
            ax.set_xlabel("relative difference (%), negative is better")
            ax.set_title(f"against the {KINDS[reference].lower()}".replace("the re-", "re-"))
            ax.axvline(0, color="#888888", linewidth=0.8, zorder=0)
            ax.grid(axis="x", color="#EEEEEE", zorder=0)
            ax.tick_params(axis="y", length=0)
            for at, one, kind in lines:
                other = one.best[reference]
                if kind is None:
                    ax.axhline(at - 0.7, color="#DDDDDD", linewidth=0.6, zorder=0)
                    text = f"compared with {other}" if other else "not measured"
                    look: Any = {"ha": "right", "va": "center", "fontsize": 7.5, "color": GREY}
                    ax.text(LIMITS[1], at, text, **look)
                elif other is not None:
                    plot(ax, at, relative(one, one.best[kind] or "", other), kind)
        axes[0].set_yticks([at for at, *_ in lines], labels)
        for label, (_, _, kind) in zip(axes[0].get_yticklabels(), lines, strict=True):
            label.set_fontweight("normal" if kind else "bold")
        marks: list[Any] = [
            ({"color": colour, "marker": marker, "linestyle": ""}, KINDS[kind])
            for kind, (colour, marker) in LOOKS.items()
        ]
        hollow = {"marker": "o", "markerfacecolor": "white", "linestyle": ""}
        marks += [({"color": GREY, **hollow}, "hollow: tie")]
        marks += [({"color": GREY, **SEEDS}, "95% CI over seeds")]
        marks += [({"color": GREY, **IMAGES}, "95% CI over test images")]
        handles = [Line2D([], [], **look, label=label) for look, label in marks]
        figure.legend(handles=handles, loc="lower center", ncols=6, fontsize=8)
        figure.tight_layout(rect=(0, 0.045, 1, 1))
    return figure


def write(results: Path) -> list[Path]:
    """Write figures/forest.png and .pdf."""
    return save({"forest": forest(measurements())}, results / "figures", "")
