"""One line per benchmark for the README, from results/ alone: plain loss, re-weighting, the best of
the paper's losses, the best of ours, and the best post-hoc row.

A benchmark states which rows these are (`highlight`; post-hoc rows are those of its table's config)
and which column of which measurements is shown (`summary`). The verdicts follow from the intervals
of the differences (intervals.py).
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine import RESULTS
from engine.tables import intervals
from engine.tables.columns import Column, all_rows, column, highlighted, table_configs
from engine.tables.pages import insert_everywhere
from engine.tables.table import REPLICATES, markdown, number, read_replicates, render, write_texts

KINDS = {
    "baseline": "Plain loss",
    "reweighted": "Re-weighting",
    "paper": "Paper's best loss",
    "ours": "Our best loss",
    "posthoc": "Best post-hoc",
}
REFERENCES = ("baseline", "reweighted")
VERDICTS = {"ahead": "ahead of", "tie": "tie with", "behind": "behind", "open": "open against"}


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
    """Return the summary as Markdown."""
    head = ["Benchmark", "Metric", *KINDS.values(), "Verdict"]
    return markdown([head, *map(line, measurements())])


def line(one: Measurement) -> list[str]:
    cells = ["-" if row is None else f"{number(one.means[row])} {row}" for row in one.best.values()]
    title = f"{one.benchmark['title']}: [{one.name}](results/{one.name}.md)"
    return [title, metric(one.column.group, one.column), *cells, verdicts(one)]


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


def publish() -> None:
    """Write all that follows from results/*.json: <name>.{md,csv,tex}, the blocks of the pages."""
    for path in sorted(RESULTS.glob("*.json")):
        content = json.loads(path.read_text())
        if "rows" in content:
            write_texts(content, RESULTS, path.stem)
            insert_everywhere(RESULTS, path.stem, render(content, file=path.stem))
    insert_everywhere(RESULTS, "summary", summary())
