"""One line per benchmark for the README, from results/ alone: plain loss, re-weighting, the best of
the paper's losses, the best of ours, and the best post-hoc row.

A benchmark states which rows these are (`highlight`; post-hoc rows are those of its table's config)
and which column of which measurements is shown (`summary`). The verdicts follow from the intervals
of the differences (intervals.py).
"""

import json
from collections.abc import Mapping, Sequence
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
        """Compare two rows; the verdict is open if their values are not stored."""
        if row not in self.samples or other not in self.samples:
            return {"verdict": "open"}
        better, sampled = self.column.better, self.benchmark.get("sampled", True)
        return intervals.difference(self.samples[row], self.samples[other], better, sampled)


def measurement(benchmark: Mapping[str, Any], name: str) -> Measurement:
    content = json.loads((RESULTS / f"{name}.json").read_text())
    key = benchmark["summary"]["column"]
    about = column(benchmark, key)
    cells = {row: cells[key] for row, cells in all_rows(content).items() if key in cells}
    means = {row: one["mean"] for row, one in cells.items() if one["mean"] is not None}
    sign = 1 if about.better == "lower" else -1
    best = {}
    config = table_configs()[benchmark["name"]].get("rows") or {}
    posthoc = [row for row, about in config.items() if "posthoc" in about]
    for kind in KINDS:
        rows = posthoc if kind == "posthoc" else highlighted(benchmark, kind)
        known = [row for row in rows if row in means]
        best[kind] = min(known, key=lambda row: sign * means[row], default=None)
    replicates = read_replicates(RESULTS / f"{name}{REPLICATES}")
    found = intervals.samples(content, replicates) if "seeds" in content else {}
    samples = {row: columns[key] for row, columns in found.items() if key in columns}
    return Measurement(name, benchmark, about, means, best, samples)


def measurements() -> list[Measurement]:
    """Return all measurements of the summary that are in results/."""
    benchmarks = [
        table["benchmark"]
        for name, table in table_configs().items()
        if name == table["benchmark"]["name"]
    ]
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
    clauses, kinds = [], list(KINDS)
    for kind in kinds[2:]:
        row = one.best[kind]
        references = kinds[: kinds.index(kind)]
        others = [other for name in references if (other := one.best[name]) is not None]
        if row is None or not others:
            continue
        found: dict[str, list[str]] = {}
        for other in others:
            found.setdefault(one.difference(row, other)["verdict"], []).append(other)
        words = [f"{VERDICTS[v]} {joined(found[v])}" for v in VERDICTS if v in found]
        clauses.append(f"{row} {', '.join(words)}")
    return "; ".join(clauses)


def joined(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def publish() -> None:
    """Write all that follows from results/*.json: <name>.{md,csv,tex}, the blocks of the pages."""
    for path in sorted(RESULTS.glob("*.json")):
        content = json.loads(path.read_text())
        if "rows" in content:
            write_texts(content, RESULTS, path.stem)
            insert_everywhere(RESULTS, path.stem, render(content, file=path.stem))
    insert_everywhere(RESULTS, "summary", summary())
