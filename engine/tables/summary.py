"""Every benchmark in one line, from results/ alone: the baseline, re-weighting, the best of the
paper's losses, the best of ours, and what that comes to in words.

The benchmark says which rows these are (`highlight`), and which column of which measurements to
show (`summary`). A row is ahead of another one if the gap is larger than their spreads together.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine import RESULTS
from engine.tables.columns import column, highlighted
from engine.tables.report.gather import table_configs
from engine.tables.table import insert_everywhere, number, pages

HEAD = ("", "column", "baseline", "re-weighting", "the paper's best", "our best", "in words")


class Best(NamedTuple):
    row: str
    mean: float
    std: float


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

    def best(kind: str) -> Best | None:
        cells = {row: rows[row][shown] for row in highlighted(benchmark, kind) if row in rows}
        known = [
            Best(row, cell["mean"], cell["std"] or 0.0)
            for row, cell in cells.items()
            if cell["mean"] is not None
        ]
        return min(known, key=lambda one: sign * one.mean, default=None)

    kinds = {kind: best(kind) for kind in ("baseline", "reweighted", "paper", "ours")}
    cells = ["-" if one is None else f"{number(one.mean)} {one.row}" for one in kinds.values()]
    group = about.group if about.part in ("", "All") else f"{about.group}, {about.part}"
    title = f"{benchmark['title']}: [{name}](results/{name}.md)"
    return [title, group, *cells, words(kinds, sign)]


def words(kinds: Mapping[str, Best | None], sign: int) -> str:
    """E.g. BMC ahead of Vanilla, behind RRT; Histogram ahead of Vanilla, RRT and BMC."""
    said = []
    for kind, against in (("paper", ("baseline", "reweighted")), ("ours", tuple(kinds)[:3])):
        one = kinds[kind]
        others = [other for name in against if (other := kinds[name]) is not None]
        if one is None or not others:
            continue
        found: dict[str, list[str]] = {}
        for other in others:
            found.setdefault(relation(one, other, sign), []).append(other.row)
        parts = [f"{how} {joined(found[how])}" for how in WORDS if how in found]
        said.append(f"{one.row} {', '.join(parts)}")
    return "; ".join(said)


WORDS = ("ahead of", "level with", "behind")


def relation(one: Best, other: Best, sign: int) -> str:
    gap = sign * (other.mean - one.mean)
    if abs(gap) <= one.std + other.std:
        return "level with"
    return "ahead of" if gap > 0 else "behind"


def joined(names: list[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def publish() -> None:
    """Write the summary into the pages that show it."""
    insert_everywhere(pages(RESULTS), "summary", summary())
