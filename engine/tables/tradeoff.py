"""The trade-off of a method: what its knob buys for the rare labels, and costs the frequent ones.

x, y          two columns of which less is better, e.g. the error of many- and few-shot labels
the front     the points of a method, and the one to start from, that no other of them beats in
              both; joined by straight lines, as knobs are continuous, and level after the last
the area      the mean height of the front from the start's x to the median of the fronts' ends:
              the rare labels' error at the same price for the frequent ones, averaged over
              prices that methods do pay; one that goes far beyond does not decide for all.
              Methods are compared by it like rows of a table (intervals.py)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig

from engine.runs import records
from engine.tables.columns import column
from engine.tables.intervals import against, samples
from engine.tables.plots import STYLE, colour, save

Point = tuple[float, float]
FAR = 3  # times the start's error: a model that is so far off is not on any curve


def front(points: Sequence[Point]) -> NDArray:
    """(k, 2) the points that no other one beats, x rising and y falling."""
    kept: list[Point] = []
    for x, y in sorted(points):
        if np.isfinite(x + y) and (not kept or y < kept[-1][1]):
            kept.append((x, y))
    return np.array(kept).reshape(-1, 2)


def heights(fronts: Mapping[str, NDArray], start: float) -> dict[str, float]:
    """The mean height of each front from `start` to the median of their ends."""
    end = end_of(fronts, start)
    if not end > start:  # nothing but the start
        return {name: float(one[-1, 1]) if len(one) else np.nan for name, one in fronts.items()}
    found = {}
    for name, one in fronts.items():
        inner = one[(one[:, 0] > start) & (one[:, 0] < end), 0]
        x = np.array([start, *inner, end])
        found[name] = float(np.trapezoid(np.interp(x, one[:, 0], one[:, 1]), x) / (end - start))
    return found


def end_of(fronts: Mapping[str, NDArray], start: float) -> float:
    """The median of the largest x of the fronts, without those that do not leave the start."""
    ends = [one[-1, 0] for one in fronts.values() if len(one) and one[-1, 0] > start]
    return float(np.median(ends)) if ends else start


def areas(
    content: Mapping[str, Any], draws: Mapping[str, Mapping[str, NDArray]]
) -> dict[str, dict[str, Any]]:
    """{method: {"mean", "values": {stage 1: area}, "against": {method: difference}}} of a table.

    A front is made of means over the seeds of stage 2; there is one for each stage 1, and one on
    each draw of the test set.
    """
    about, found = content["tradeoff"], samples(content, draws)
    x, y, start = about["x"], about["y"], about["start"]
    methods = {
        name: [row for row in rows.values() if row in found]
        for name, rows in content["curves"].items()
    }

    def of(point: Any) -> dict[str, float]:
        """The area of each method; point(row, column) is a number."""
        origin = point(start, x), point(start, y)
        fronts = {
            name: front([origin, *((point(row, x), point(row, y)) for row in rows)])
            for name, rows in methods.items()
        }
        return heights(fronts, origin[0])

    def over_heads(first: int) -> Any:
        def point(row: str, name: str) -> float:
            values = found[row][name]["values"]
            return float(np.mean([v for (s1, _), v in values.items() if s1 == first]))

        return point

    stages = sorted({seed[0] for seed in found[start][x]["values"]})
    by_stage = {first: of(over_heads(first)) for first in stages}
    rows = [start, *(row for rows in methods.values() for row in rows)]
    drawn = [found[row][name]["draws"] for row in rows for name in (x, y)]
    count = len(drawn[0]) if all(one is not None for one in drawn) else 0
    by_draw = [of(lambda row, name, i=i: float(found[row][name]["draws"][i])) for i in range(count)]
    measured = {
        name: {
            "area": {
                "values": {(first, 0): of_stage[name] for first, of_stage in by_stage.items()},
                "draws": np.array([one[name] for one in by_draw]) if by_draw else None,
            }
        }
        for name in methods
    }
    differences = against(measured, list(methods), {"area": "lower"})
    return {
        name: {
            "mean": float(np.mean(list(one["area"]["values"].values()))),
            "values": [one["area"]["values"][first, 0] for first in stages],
            "against": {other: by["area"] for other, by in differences[name].items()},
        }
        for name, one in measured.items()
    }


def draw(cfg: DictConfig, runs: Mapping[str, Any], folder: Path) -> list[Path]:
    """The curves of all methods, without values that ran far away, and the corner where they
    differ."""
    content = records.read(folder.parent / f"{cfg.name}.json", "Make the table again.")
    about = content["tradeoff"]
    names = [axis_label(cfg.benchmark, about[axis]) for axis in ("x", "y")]
    origin = start_of(content)
    near = {
        method: {k: p for k, p in of.items() if not any(np.array(p) > FAR * np.array(origin))}
        for method, of in points_of(content).items()
    }
    points = {method: of for method, of in near.items() if of}
    with mpl.rc_context(STYLE):
        figure = Figure((8, 3.8))
        everything, corner = figure.subplots(1, 2)
        curves(points, content, everything)
        if points:
            everything.legend(fontsize=7)
        curves(points, content, corner)
        fronts = {name: front([origin, *of.values()]) for name, of in points.items()}
        end = end_of(fronts, origin[0])
        shown = [point for one in fronts.values() for point in one if point[0] <= end]
        shown += [(end, np.interp(end, *one.T)) for one in fronts.values() if len(one)]
        if shown:
            low, high = np.min(shown, 0), np.max(shown, 0)
            margin = 0.08 * (high - low)
            corner.set_xlim(low[0] - margin[0], end + margin[0])
            corner.set_ylim(low[1] - margin[1], high[1] + margin[1])
        everything.set(xlabel=names[0], ylabel=names[1])
        corner.set(xlabel=names[0])
        corner.set_title("where the area is taken, with the knobs' values")
        figure.tight_layout()
        label_knobs(points, corner)
        return save({"curves": figure}, folder, cfg.name)


def start_of(content: Mapping[str, Any]) -> Point:
    """The point that all curves start from; NaN where the test set has no such labels."""
    about = content["tradeoff"]
    found = (content["rows"][about["start"]][about[axis]]["mean"] for axis in ("x", "y"))
    x, y = (np.nan if value is None else value for value in found)
    return x, y


def points_of(content: Mapping[str, Any]) -> dict[str, dict[str, Point]]:
    """{method: {knob: (x, y)}}, means over all seeds; without values that diverged."""
    x, y = content["tradeoff"]["x"], content["tradeoff"]["y"]
    rows = content["rows"]
    return {
        method: {
            knob: (rows[row][x]["mean"], rows[row][y]["mean"])
            for knob, row in of_method.items()
            if rows[row][x]["mean"] is not None
        }
        for method, of_method in content["curves"].items()
    }


def curves(points: Mapping[str, Mapping[str, Point]], content: Mapping[str, Any], ax: Axes) -> Axes:
    """A curve for each method over its knob, a ring at what validation chose, a cross at the start;
    the legend has the areas."""
    x, y = content["tradeoff"]["x"], content["tradeoff"]["y"]
    for method, of_method in points.items():
        shade = colour(method)
        many, few = zip(*of_method.values(), strict=True)
        area = content["areas"][method]["mean"]
        ax.plot(many, few, ".-", color=shade, label=f"{method}, area {area:.2f}", linewidth=1)
        if method in content["rows"]:
            chosen = [content["rows"][method][name]["mean"] for name in (x, y)]
            ax.plot(*chosen, "o", color=shade, markerfacecolor="none", markersize=7)
    ax.plot(*start_of(content), "x", color="black", markersize=6)
    return ax


def label_knobs(points: Mapping[str, Mapping[str, Point]], ax: Axes) -> list[str]:
    """Write the knob's value at each point of the plot, but not over another value."""
    size = np.array([20, 9]) * ax.figure.dpi / 100  # pixels that a value takes
    placed: list[NDArray] = []
    written = []
    for method, of_method in points.items():
        for knob, point in of_method.items():
            at = ax.transData.transform(point)
            if not ax.bbox.contains(*at) or any((abs(at - one) < size).all() for one in placed):
                continue
            placed.append(at)
            written.append(f"{method} {knob}")
            style: Any = {"fontsize": 6, "color": colour(method), "textcoords": "offset points"}
            ax.annotate(f"{float(knob):g}", point, (3, 3), **style)
    return written


def axis_label(benchmark: Mapping[str, Any], name: str) -> str:
    """E.g. bMAE (years), Many."""
    about = column(benchmark, name)
    return f"{about.group.rstrip(' ↓↑')}, {about.part}"
