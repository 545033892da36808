"""Trade-off of a method: the gain on rare labels over its knob, and the loss on frequent ones.

x, y          two columns of which less is better, e.g. the error of many- and few-shot labels
the front     the points of a method, and the common start, that no other of them beats in both;
              joined by straight lines, as knobs are continuous, and constant after the last
the area      the mean height of the front from the start's x to the median end of all fronts: the
              error of rare labels at the same price for frequent ones, averaged over prices that
              methods pay; one that goes far beyond does not decide for all. Methods are compared
              by it like rows of a table (intervals.py)
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig

from engine.runs import records
from engine.tables.columns import column
from engine.tables.intervals import Content, Replicates, Seed, difference, samples
from engine.tables.plots import colour, save, styled

Point = tuple[float, float]
FAR = 3  # a model with this many times the error of the start is not plotted


def front(points: Iterable[Sequence[float]]) -> NDArray:
    """Return the points that no other one beats, (k, 2), x rising and y falling."""
    kept: list[Point] = []
    for x, y in sorted(map(tuple, points)):
        if np.isfinite(x + y) and (not kept or y < kept[-1][1]):
            kept.append((x, y))
    return np.array(kept).reshape(-1, 2)


def heights(fronts: Mapping[str, NDArray], start: float) -> dict[str, float]:
    """Return the mean height of each front from `start` to the median of their ends."""
    end = end_of(fronts, start)
    if not end > start:  # no front leaves the start
        return {name: float(one[-1, 1]) if len(one) else np.nan for name, one in fronts.items()}
    found = {}
    for name, one in fronts.items():
        inner = one[(one[:, 0] > start) & (one[:, 0] < end), 0]
        x = np.array([start, *inner, end])
        found[name] = float(np.trapezoid(np.interp(x, one[:, 0], one[:, 1]), x) / (end - start))
    return found


def end_of(fronts: Mapping[str, NDArray], start: float) -> float:
    """Return the median of the largest x of the fronts that leave the start."""
    ends = [one[-1, 0] for one in fronts.values() if len(one) and one[-1, 0] > start]
    return float(np.median(ends)) if ends else start


def areas(content: Content, replicates: Replicates) -> dict[str, dict[str, Any]]:
    """Return {method: {"mean", "values" of each stage-1 run, "against": {method: difference}}}.

    A front consists of means over stage-2 seeds; there is one for each stage-1 run, and one on each
    bootstrap replicate of the test set.
    """
    about, found = content["tradeoff"], samples(content, replicates)
    axes, start = (about["x"], about["y"]), about["start"]
    methods = {
        name: [row for row in rows.values() if row in found]
        for name, rows in content["curves"].items()
    }
    rows = [start, *(row for of_method in methods.values() for row in of_method)]
    stages = sorted({first for first, _ in found[start][axes[0]]["values"]})

    def on_stages(values: Mapping[Seed, float]) -> list[Any]:
        return [np.mean([v for (s1, _), v in values.items() if s1 == stage]) for stage in stages]

    def heights_of(points: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """Return {method: (S,)} of {row: (S, 2)}."""
        made = []
        for i, origin in enumerate(points[start]):
            fronts = {m: front([origin, *(points[row][i] for row in methods[m])]) for m in methods}
            made.append(heights(fronts, origin[0]))
        return {method: np.array([one[method] for one in made]) for method in methods}

    xy = {row: [found[row][axis] for axis in axes] for row in rows}
    means = {row: [on_stages(one["values"]) for one in xy[row]] for row in rows}
    by_stage = heights_of({row: np.transpose(means[row]) for row in rows})
    stored = {row: [one["replicates"] for one in xy[row]] for row in rows}
    complete = all(one is not None for of_row in stored.values() for one in of_row)
    sampled = heights_of({row: np.transpose(stored[row]) for row in rows}) if complete else {}
    measured = {
        method: {
            "values": dict(zip([(stage, 0) for stage in stages], values.tolist(), strict=True)),
            "replicates": sampled.get(method),
        }
        for method, values in by_stage.items()
    }

    def against(method: str) -> dict[str, Any]:
        others = [other for other in methods if other != method]
        return {o: difference(measured[method], measured[o], "lower") for o in others}

    return {
        method: {"mean": float(np.mean(of)), "values": of.tolist(), "against": against(method)}
        for method, of in by_stage.items()
    }


@styled
def plot(cfg: DictConfig, runs: Mapping[str, Any], folder: Path) -> list[Path]:
    """Plot the curves of all methods, without values that ran far away, and the area's range."""
    content = records.read(folder.parent / f"{cfg.name}.json", "Rerun the table.")
    about = content["tradeoff"]
    origin = point_of(content, about["start"])
    points = {}
    for method, rows in content["curves"].items():
        found = {knob: point_of(content, row) for knob, row in rows.items()}
        near = {k: p for k, p in found.items() if (np.array(p) <= FAR * np.array(origin)).all()}
        points |= {method: near} if near else {}
    posthoc = {row.get("curve", name) for name, row in cfg.table.rows.items() if "posthoc" in row}
    figure = Figure((8, 3.8))
    everything, zoomed = figure.subplots(1, 2)
    for ax in (everything, zoomed):
        for method in points:
            plot_curve(method, points[method], content, ax, continuous=method in posthoc)
        ax.plot(*origin, "x", color="black", markersize=6)
    if points:
        everything.legend(fontsize=7)
    fronts = {name: front([origin, *of.values()]) for name, of in points.items()}
    end = end_of(fronts, origin[0])
    shown = [point for one in fronts.values() for point in one if point[0] <= end]
    shown += [(end, np.interp(end, *one.T)) for one in fronts.values() if len(one)]
    if shown:
        low, high = np.min(shown, 0), np.max(shown, 0)
        margin = 0.08 * (high - low)
        zoomed.set_xlim(low[0] - margin[0], end + margin[0])
        zoomed.set_ylim(low[1] - margin[1], high[1] + margin[1])
    columns = (column(cfg.benchmark, about[axis]) for axis in ("x", "y"))
    labels = [f"{one.group.rstrip(' ↓↑')}, {one.part}" for one in columns]
    everything.set(xlabel=labels[0], ylabel=labels[1])
    zoomed.set(xlabel=labels[0], title="range of the area, with the values of the knobs")
    figure.tight_layout()
    label_knobs(points, zoomed)
    return save({"curves": figure}, folder, cfg.name)


def point_of(content: Content, row: str) -> Point:
    """Return (x, y) of a row, means over all seeds; NaN if it diverged or has no such labels."""
    found = (content["rows"][row][content["tradeoff"][axis]]["mean"] for axis in ("x", "y"))
    x, y = (np.nan if value is None else value for value in found)
    return x, y


def plot_curve(
    method: str, points: Mapping[str, Point], content: Content, ax: Axes, continuous: bool
) -> None:
    """Plot the curve of a method, with a ring at the value chosen on validation.

    continuous: the curve is the front of one model, balanced afterwards.
    """
    shade, area = colour(method), content["areas"][method]["mean"]
    look: Any = {"linewidth": 2} if continuous else {"marker": ".", "linewidth": 1}
    curve = zip(*points.values(), strict=True)
    ax.plot(*map(list, curve), color=shade, label=f"{method}, area {area:.2f}", **look)
    if method in content["rows"]:
        chosen = point_of(content, method)
        ax.plot(*chosen, "o", color=shade, markerfacecolor="none", markersize=7)


def label_knobs(points: Mapping[str, Mapping[str, Point]], ax: Axes) -> None:
    """Write the knob's value at each visible point, unless it would cover another value."""
    size = np.array([20, 9]) * ax.figure.dpi / 100  # of a value in pixels
    placed: list[NDArray] = []
    for method, of_method in points.items():
        for knob, point in of_method.items():
            at = ax.transData.transform(point)
            if ax.bbox.contains(*at) and not any((abs(at - one) < size).all() for one in placed):
                placed.append(at)
                style: Any = {"fontsize": 6, "color": colour(method), "textcoords": "offset points"}
                ax.annotate(f"{float(knob):g}", point, (3, 3), **style)
