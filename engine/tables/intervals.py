"""Is a difference between two rows of a table one? Two intervals of 95% say so.

    over seeds    Student's t on the paired differences: the same seed of stage 1 and of stage 2.
                  With several stages 1 their means are what is independent, so n is their number
    over images   the middle 95% of the differences on R draws of the test set, which are the same
                  for both rows; seeds averaged

A row is ahead of another only where both intervals lie on the better side of zero, behind where
both lie on the worse side; anything else is a tie. With a single seed it is open. The synthetic
test labels are a grid and no sample (`benchmark.drawn: false`): there seeds alone decide.

S: seeds; R: draws.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from engine.tables.columns import column, highlighted

LEVEL = 0.95
Interval = tuple[float, float]
Seed = tuple[int, int]  # of stage 1 and of stage 2; a row of one stage has it twice


def paired(ours: Mapping[Seed, float], theirs: Mapping[Seed, float]) -> dict[Seed, float]:
    """The differences of the seeds that both rows have: {seed: difference}.

    A row that is itself the stage 1, one value for each, is paired with all that build on it.
    """
    of_stage = {first: value for (first, _), value in theirs.items()}
    alone = len(of_stage) == len(theirs)
    if not alone and len({first for first, _ in ours}) == len(ours):
        return {seed: -value for seed, value in paired(theirs, ours).items()}
    partner = {
        seed: of_stage.get(seed[0]) if alone and seed not in theirs else theirs.get(seed)
        for seed in ours
    }
    return {
        seed: ours[seed] - other
        for seed, other in partner.items()
        if other is not None and math.isfinite(ours[seed] - other)
    }


def over_seeds(differences: Mapping[Seed, float]) -> Interval | None:
    """The t interval of the mean difference; None for a single one."""
    stages: dict[int, list[float]] = {}
    for (first, _), value in differences.items():
        stages.setdefault(first, []).append(value)
    values = [float(np.mean(of_stage)) for of_stage in stages.values()]
    if len(values) == 1:
        values = list(differences.values())
    if len(values) < 2:
        return None
    half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * stats.sem(values)
    return float(np.mean(values) - half), float(np.mean(values) + half)


def over_images(ours: NDArray, theirs: NDArray) -> Interval | None:
    """The percentile interval of a difference on the same draws: (R,), (R,)."""
    differences = ours - theirs
    differences = differences[np.isfinite(differences)]  # a draw may leave a group empty
    if not len(differences):
        return None
    low, high = np.quantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def verdict(
    seeds: Interval | None,
    images: Interval | None,
    better: Literal["lower", "higher"],
    drawn: bool = True,
) -> Literal["ahead", "behind", "tie", "open"]:
    """Both intervals beyond zero on one side, or a tie; open where one was not measured. Where
    nothing can be `drawn`, as the test set is no sample, seeds decide."""
    if seeds is None or (images is None and drawn):
        return "open"
    sign = -1 if better == "lower" else 1
    ends = [sign * end for interval in (seeds, images) if interval for end in interval]
    return "ahead" if min(ends) > 0 else "behind" if max(ends) < 0 else "tie"


def difference(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    better: Literal["lower", "higher"],
    drawn: bool = True,
) -> dict[str, Any]:
    """One row against another in one column; each has "values" {seed: value} and "draws" (R,)."""
    by_seed = paired(ours["values"], theirs["values"])
    seeds = over_seeds(by_seed)
    a, b = ours["draws"], theirs["draws"]
    images = None if a is None or b is None else over_images(a, b)
    return {
        "mean": float(np.mean(list(by_seed.values()))) if by_seed else None,
        "pairs": len(by_seed),
        "seeds": seeds,
        "images": images,
        "verdict": verdict(seeds, images, better, drawn),
    }


def mean_draws(places: Sequence[Mapping[str, NDArray]], columns: Sequence[str]) -> dict[str, Any]:
    """{column: (R,)} on the draws, averaged over runs; without those that a run has not kept."""
    kept = [name for name in columns if places and all(name in one for one in places)]
    return {name: np.mean([one[name] for one in places], 0) for name in kept}


def samples(
    content: Mapping[str, Any], draws: Mapping[str, Mapping[str, NDArray]]
) -> dict[str, dict[str, Any]]:
    """{row: {column: {"values": {seed: value}, "draws": (R,) or None}}} of a stored table; without
    rows that were not run or diverged."""
    cells = {**content["rows"], **content.get("extras", {})}
    seeds = {row: [tuple(seed) for seed in of_row] for row, of_row in content["seeds"].items()}

    def sample(row: str, column: str) -> dict[str, Any]:
        values = (math.nan if v is None else v for v in cells[row][column]["values"])
        of_row = draws.get(row, {}).get(column)
        return {"values": dict(zip(seeds[row], values, strict=True)), "draws": of_row}

    run = [row for row in cells if seeds.get(row) and not _diverged(cells[row])]
    return {row: {column: sample(row, column) for column in cells[row]} for row in run}


def _diverged(cells: Mapping[str, Any]) -> bool:
    return any(entry.get("diverged") for entry in cells.values())


def against(
    rows: Mapping[str, Mapping[str, Any]],
    baselines: Sequence[str],
    better: Mapping[str, Any],
    drawn: bool = True,
) -> dict[str, Any]:
    """{row: {baseline: {column: difference}}} of all rows {row: {column: {"values", "draws"}}}."""
    return {
        row: {
            baseline: {
                name: difference(columns[name], rows[baseline][name], better[name], drawn)
                for name in columns
                if name in rows[baseline]
            }
            for baseline in baselines
            if baseline in rows and baseline != row
        }
        for row, columns in rows.items()
    }


def compared(
    content: Mapping[str, Any],
    draws: Mapping[str, Mapping[str, NDArray]],
    benchmark: Mapping[str, Any],
) -> dict[str, Any]:
    """{"against"} of a stored table: its rows, but not each value of a sweep, against the rows
    that its benchmark calls baseline and re-weighted."""
    found, values = samples(content, draws), swept(content)
    rows = {row: columns for row, columns in found.items() if row not in values}
    names = dict.fromkeys(name for columns in rows.values() for name in columns)
    better = {name: column(benchmark, name).better for name in names}
    baselines = [*highlighted(benchmark, "baseline"), *highlighted(benchmark, "reweighted")]
    return {"against": against(rows, baselines, better, benchmark.get("drawn", True))}


def swept(content: Mapping[str, Any]) -> set[str]:
    """The rows of a table that are one value of a method's curve."""
    return {row for of_curve in content.get("curves", {}).values() for row in of_curve.values()}


def ahead(against: Mapping[str, Any], row: str, column: str) -> bool:
    """Whether a row is ahead of every baseline in a column: what is shown in bold."""
    others = against.get(row) or {}
    found = [one.get(column, {}).get("verdict") for one in others.values()]  # a part has no column
    return bool(found) and all(verdict == "ahead" for verdict in found)


def in_words(others: Mapping[str, str]) -> str:
    """{baseline: verdict} -> "ahead of Vanilla and RRT, tie with RRT+LDS"."""
    found: dict[str, list[str]] = {}
    for baseline, said in others.items():
        found.setdefault(said, []).append(baseline)
    return ", ".join(f"{WORDS[said]} {joined(found[said])}" for said in WORDS if said in found)


WORDS = {"ahead": "ahead of", "tie": "tie with", "behind": "behind", "open": "open against"}


def joined(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def lines(against: Mapping[str, Any], column: str, number: Callable[[float], str]) -> list[list]:
    """[row, baseline, difference, interval over seeds, over images, verdict] of one column."""

    def ends(interval: Sequence[float] | None) -> str:
        return "-" if interval is None else f"[{number(interval[0])}, {number(interval[1])}]"

    return [
        [
            row,
            baseline,
            number(one["mean"]),
            ends(one["seeds"]),
            ends(one["images"]),
            one["verdict"],
        ]
        for row, others in against.items()
        for baseline, columns in others.items()
        if (one := columns[column])["mean"] is not None
    ]
