"""One line per benchmark for the README, from results/ alone: plain loss, re-weighting, the best of
the paper's losses, the best of ours, and the best post-hoc row; and a forest plot of the last three
against the first two.

A benchmark states which rows these are (`highlight`; post-hoc rows are those of its table's config)
and which column of which measurements is shown (`summary`). The verdicts follow from the intervals
of the differences (intervals.py). The plot shows

    relative difference = 100 (mean of the row - mean of the reference) / mean of the reference

Both 95% intervals are divided by the same mean; negative is better.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from engine import RESULTS
from engine.tables import intervals
from engine.tables.columns import Column, all_rows, column, highlighted, table_configs
from engine.tables.pages import insert_everywhere
from engine.tables.plots import save, styled
from engine.tables.table import REPLICATES, markdown, number, read_replicates, render, write_texts

KINDS = {
    "baseline": "Plain loss",
    "reweighted": "Re-weighting",
    "paper": "Paper's best loss",
    "ours": "Our best loss",
    "posthoc": "Best post-hoc",
}
REFERENCES = ("baseline", "reweighted")
VERDICTS = {"ahead": "ahead of", "tie": "tie with", "behind": "behind"}  # not "open": one seed
LIMITS = (-45.0, 20.0)  # percent; what lies outside is written at the edge
LOOKS = {  # colour-blind-safe, Okabe and Ito
    "paper": ("#D55E00", "o"),
    "ours": ("#0072B2", "s"),
    "posthoc": ("#009E73", "D"),
}
SEEDS: Any = {"linewidth": 3.2, "solid_capstyle": "butt"}
IMAGES: Any = {"linewidth": 1.1}
GREY = "#555555"


class Measurement(NamedTuple):
    """The highlighted rows of results/<name>.json in the summary's column."""

    name: str
    benchmark: Mapping[str, Any]
    column: Column
    means: Mapping[str, float]  # {row: mean}
    best: Mapping[str, str | None]  # {kind: row}
    samples: Mapping[str, Any]  # {row: {"values", "replicates"}}

    def difference(self, row: str, other: str) -> dict[str, Any]:
        sides = self.samples[row], self.samples[other]
        return intervals.difference(*sides, self.column.better, self.benchmark.get("sampled", True))


def measurement(benchmark: Mapping[str, Any], name: str) -> Measurement:
    content = json.loads((RESULTS / f"{name}.json").read_text())
    key = benchmark["summary"]["column"]
    about = column(benchmark, key)
    cells = {row: cells[key] for row, cells in all_rows(content).items() if key in cells}
    means = {row: one["mean"] for row, one in cells.items() if one["mean"] is not None}
    sign = 1 if about.better == "lower" else -1
    config = table_configs()[benchmark["name"]].get("rows") or {}
    rows = {kind: highlighted(benchmark, kind) for kind in KINDS}
    rows["posthoc"] = [row for row, about in config.items() if "posthoc" in about]
    best = {}
    for kind, names in rows.items():
        known = [row for row in names if row in means]
        best[kind] = min(known, key=lambda row: sign * means[row], default=None)
    found = intervals.samples(content, read_replicates(RESULTS / f"{name}{REPLICATES}"))
    samples = {row: found[row][key] for row in means}
    return Measurement(name, benchmark, about, means, best, samples)


def measurements() -> list[Measurement]:
    """Return all measurements of the summary that are in results/."""
    tables = table_configs().items()
    benchmarks = [t["benchmark"] for name, t in tables if name == t["benchmark"]["name"]]
    return [
        measurement(benchmark, name)
        for benchmark in benchmarks
        for name in (benchmark.get("summary") or {}).get("of", [])
        if (RESULTS / f"{name}.json").is_file()
    ]


def summary() -> str:
    """Return the summary as Markdown; a benchmark's title is in the first of its lines."""
    lines = [["Benchmark", "Metric", *KINDS.values(), "Verdict"]]
    shown = None
    for one in measurements():
        title = one.benchmark["title"]
        link = f"[{one.name}](results/{one.name}.md)"
        lines.append([link if title == shown else f"{title}: {link}", *line(one)])
        shown = title
    return markdown(lines)


def line(one: Measurement) -> list[str]:
    cells = ["-" if row is None else f"{number(one.means[row])} {row}" for row in one.best.values()]
    return [metric(one.column.group, one.column), *cells, verdicts(one)]


def metric(name: str, about: Column) -> str:
    """E.g. bMAE, Few."""
    return name if about.part in ("", "All") else f"{name}, {about.part}"


def verdicts(one: Measurement) -> str:
    """E.g. BMC ahead of Vanilla, tie with RRT; Histogram ahead of Vanilla and RRT, behind BMC: each
    against those to the left of it."""
    clauses = []
    rows = [(kind, row) for kind, row in one.best.items() if row is not None]
    for i, (kind, row) in enumerate(rows):
        if kind in REFERENCES:
            continue
        found: dict[str, list[str]] = {}
        for _, other in rows[:i]:
            found.setdefault(one.difference(row, other)["verdict"], []).append(other)
        words = []
        for verdict in (verdict for verdict in VERDICTS if verdict in found):
            *others, last = found[verdict]
            names = f"{', '.join(others)} and {last}" if others else last
            words.append(f"{VERDICTS[verdict]} {names}")
        clauses += [f"{row} {', '.join(words)}"] if words else []
    return "; ".join(clauses)


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


@styled
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


def publish() -> None:
    """Write all that follows from results/*.json: <name>.{md,csv,tex}, the blocks of the pages,
    and the forest plot."""
    for path in sorted(RESULTS.glob("*.json")):
        content = json.loads(path.read_text())
        if "rows" in content:
            write_texts(content, RESULTS, path.stem)
            insert_everywhere(RESULTS, path.stem, render(content, file=path.stem))
    insert_everywhere(RESULTS, "summary", summary())
    save({"forest": forest(measurements())}, RESULTS / "figures", "")
