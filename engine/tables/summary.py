"""Every benchmark in one line, from results/ alone: the baseline, re-weighting, the best of the
paper's losses, the best of ours, and what that comes to in words.

The benchmark says which rows these are (`highlight`), and which column of which measurements to
show (`summary`). Who is ahead of whom is said by the intervals of their differences (intervals.py).
"""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from engine import RESULTS
from engine.tables import intervals
from engine.tables.columns import column, highlighted
from engine.tables.pages import beside, insert_everywhere
from engine.tables.report.gather import table_configs
from engine.tables.table import DRAWS, number, stored_draws

HEAD = ("", "column", "baseline", "re-weighting", "the paper's best", "our best", "in words")


def summary() -> str:
    """The table as Markdown."""
    found = [table for name, table in table_configs().items() if name == table["benchmark"]["name"]]
    lines = [HEAD, ["---"] * len(HEAD)]
    for table in found:
        benchmark = table["benchmark"]
        for name in (benchmark.get("summary") or {}).get("of", []):
            path = RESULTS / f"{name}.json"
            if path.is_file():
                lines.append(line(benchmark, name, json.loads(path.read_text())))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def line(benchmark: Mapping[str, Any], name: str, content: Mapping[str, Any]) -> list[str]:
    """One measurement."""
    shown = benchmark["summary"]["column"]
    about = column(benchmark, shown)
    rows = {**content["rows"], **content.get("extras", {})}
    sign = 1 if about.better == "lower" else -1

    def best(kind: str) -> str | None:
        known = [row for row in highlighted(benchmark, kind) if row in rows]
        means = {row: rows[row][shown]["mean"] for row in known}
        measured = [row for row in known if means[row] is not None]
        return min(measured, key=lambda row: sign * means[row], default=None)

    kinds = {kind: best(kind) for kind in ("baseline", "reweighted", "paper", "ours")}
    cells = [
        "-" if row is None else f"{number(rows[row][shown]['mean'])} {row}"
        for row in kinds.values()
    ]
    group = about.group if about.part in ("", "All") else f"{about.group}, {about.part}"
    title = f"{benchmark['title']}: [{name}](results/{name}.md)"
    draws = stored_draws(RESULTS / f"{name}{DRAWS}")
    found = intervals.samples(content, draws) if "seeds" in content else {}
    compare = functools.partial(
        intervals.difference, better=about.better, drawn=benchmark.get("drawn", True)
    )
    values = {row: columns[shown] for row, columns in found.items() if shown in columns}
    return [title, group, *cells, words(kinds, values, compare)]


def words(
    kinds: Mapping[str, str | None], values: Mapping[str, Any], compare: Callable[..., dict]
) -> str:
    """E.g. BMC ahead of Vanilla, tie with RRT; Histogram ahead of Vanilla and RRT, behind BMC."""
    said = []
    for kind, against in (("paper", ("baseline", "reweighted")), ("ours", tuple(kinds)[:3])):
        row = kinds[kind]
        others = [other for name in against if (other := kinds[name]) is not None]
        if row is None or not others:
            continue
        verdicts = {
            other: compare(values[row], values[other])["verdict"]
            if row in values and other in values
            else "open"
            for other in others
        }
        said.append(f"{row} {intervals.in_words(verdicts)}")
    return "; ".join(said)


def publish() -> None:
    """Write the summary into the pages that show it."""
    insert_everywhere(beside(RESULTS), "summary", summary())
