"""Is the difference between two rows significant? Two 95% intervals decide.

    over seeds    Student's t on the paired differences: same stage-1 seed, same stage-2 seed. With
                  several stage-1 runs their means are independent, so n is their number
    over images   the middle 95% of the differences on R bootstrap replicates of the test set, which
                  are the same for both rows; seeds averaged

A row is ahead of another only if both intervals lie on the better side of zero, and behind if both
lie on the worse side. Anything else is a tie; with a single seed the verdict is open. The synthetic
test labels are a grid and no sample (`benchmark.sampled: false`): there only seeds decide.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from engine.tables.columns import all_rows, column, highlighted

LEVEL = 0.95
Interval = tuple[float, float]
Seed = tuple[int, int]  # of stage 1 and of stage 2; a row of one stage has it twice
Better = Literal["lower", "higher"]
Content = Mapping[str, Any]  # of a table, see table.py
Replicates = Mapping[str, Mapping[str, NDArray]]  # {row: {column: (R,)}}


def paired(ours: Mapping[Seed, float], theirs: Mapping[Seed, float]) -> dict[Seed, float]:
    """Return {seed: difference} for the seeds that both rows have.

    A row that is itself stage 1, with one value for each, is paired with all that build on it.
    """
    stages = {first: value for (first, _), value in theirs.items()}
    if len(stages) < len(theirs):  # several values for one stage 1
        if len({first for first, _ in ours}) == len(ours):
            return {seed: -value for seed, value in paired(theirs, ours).items()}
        stages = {}
    others = {seed: theirs.get(seed, stages.get(seed[0], math.nan)) for seed in ours}
    found = {seed: value - others[seed] for seed, value in ours.items()}
    return {seed: value for seed, value in found.items() if math.isfinite(value)}


def over_seeds(differences: Mapping[Seed, float]) -> Interval | None:
    """Return the t interval of the mean difference; None for a single one."""
    stages: dict[int, list[float]] = {}
    for (first, _), value in differences.items():
        stages.setdefault(first, []).append(value)
    means = [float(np.mean(of_stage)) for of_stage in stages.values()]
    values = means if len(means) > 1 else list(differences.values())
    if len(values) < 2:
        return None
    half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * stats.sem(values)
    return float(np.mean(values) - half), float(np.mean(values) + half)


def over_images(ours: NDArray, theirs: NDArray) -> Interval | None:
    """Return the percentile interval of a difference on the same replicates: (R,), (R,)."""
    differences = ours - theirs
    differences = differences[np.isfinite(differences)]  # a replicate may leave a group empty
    if not len(differences):
        return None
    low, high = np.quantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def verdict(
    seeds: Interval | None, images: Interval | None, better: Better, sampled: bool = True
) -> Literal["ahead", "behind", "tie", "open"]:
    """Compare both intervals with zero; `sampled`: the test set is a sample, so images count."""
    if seeds is None or (images is None and sampled):
        return "open"
    sign = -1 if better == "lower" else 1
    ends = [sign * end for interval in (seeds, images) if interval for end in interval]
    return "ahead" if min(ends) > 0 else "behind" if max(ends) < 0 else "tie"


def difference(ours: Any, theirs: Any, better: Better, sampled: bool = True) -> dict[str, Any]:
    """Compare two rows in one column; each has "values" {seed: value} and "replicates" (R,)."""
    by_seed = paired(ours["values"], theirs["values"])
    seeds = over_seeds(by_seed)
    a, b = ours["replicates"], theirs["replicates"]
    images = None if a is None or b is None else over_images(a, b)
    return {
        "mean": float(np.mean(list(by_seed.values()))) if by_seed else None,
        "pairs": len(by_seed),
        "seeds": seeds,
        "images": images,
        "verdict": verdict(seeds, images, better, sampled),
    }


def samples(content: Content, replicates: Replicates) -> dict[str, dict[str, Any]]:
    """Return {row: {column: {"values": {seed: value}, "replicates": (R,) or None}}} of a stored
    table, without rows that were not run or diverged."""
    found: dict[str, dict[str, Any]] = {}
    for row, cells in all_rows(content).items():
        seeds = [tuple(seed) for seed in content["seeds"].get(row, ())]
        if not seeds or any(entry.get("diverged") for entry in cells.values()):
            continue
        found[row] = {}
        for name, entry in cells.items():
            values = (math.nan if value is None else value for value in entry["values"])
            by_seed = dict(zip(seeds, values, strict=True))
            stored = replicates.get(row, {}).get(name)
            found[row][name] = {"values": by_seed, "replicates": stored}
    return found


def compared(content: Content, replicates: Replicates, benchmark: Content) -> dict[str, Any]:
    """Return {"against": {row: {baseline: {column: difference}}}} of a table: its rows, except the
    values of a sweep, against the rows that its benchmark highlights as baseline and re-weighted,
    and against a baseline of their own (`own`: {row: baseline}), if they have one.
    """
    values, found = swept(content), samples(content, replicates)
    rows = {row: columns for row, columns in found.items() if row not in values}
    baselines = [row for row in highlighted(benchmark, "baseline", "reweighted") if row in rows]

    def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
        sampled = benchmark.get("sampled", True)
        return {
            name: difference(ours[name], theirs[name], column(benchmark, name).better, sampled)
            for name in ours
            if name in theirs
        }

    against, own = {}, benchmark.get("own") or {}
    for row in rows:
        others = [other for other in (*baselines, own.get(row)) if other in rows and other != row]
        against[row] = {other: differences(rows[row], rows[other]) for other in others}
    return {"against": against}


def swept(content: Mapping[str, Any]) -> set[str]:
    """Return the rows of a table that are one value of a method's curve."""
    return {row for of_curve in content.get("curves", {}).values() for row in of_curve.values()}


def is_ahead(against: Mapping[str, Any], row: str, name: str) -> bool:
    """Whether a row is ahead of every baseline in a column; such cells are bold."""
    found = [one.get(name, {}).get("verdict") for one in against.get(row, {}).values()]
    return bool(found) and all(verdict == "ahead" for verdict in found)
