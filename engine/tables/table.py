"""A table is data: rows, columns, mean and spread over seeds, and the published value beside each.

    {"rows": {row: {column: {"mean", "std", "seeds", "values", "paper"}}},
     "seeds": {row: [[of stage 1, of stage 2]]}, "against": see intervals.py,
     "meta": {"commit", "command", "machine", "seconds", "versions"}}

It is kept as JSON, and written from that as Markdown, CSV and LaTeX; no number is typed by hand.
"""

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from datasets.io.arrays import read_npz
from datasets.io.files import atomic_write
from engine.runs import records
from engine.tables import intervals

FORMATS = ("md", "csv", "tex", "json")
EXTRAS = "Not in the paper"
DIVERGED = "diverged"
DRAWS = "_draws.npz"  # of a table's file with the metrics on draws of the test set


def cell(values: Sequence[float | str | None], paper: float | None = None) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds; one seed has no spread. Where a run DIVERGED
    there is no mean, as that of the others would look like a result."""
    if diverged := sum(value == DIVERGED for value in values):
        marks = {"mean": None, "std": None, "seeds": len(values), "paper": paper}
        return {**marks, "diverged": diverged}
    kept = [v if isinstance(v, int | float) and math.isfinite(v) else None for v in values]
    finite = [value for value in kept if value is not None]
    mean = sum(finite) / len(finite) if finite else None
    std = None
    if mean is not None and len(finite) > 1:
        std = math.sqrt(sum((value - mean) ** 2 for value in finite) / (len(finite) - 1))
    return {"mean": mean, "std": std, "seeds": len(finite), "values": kept, "paper": paper}


def render(table: Mapping[str, Any], form: str = "md") -> str:
    """The table as Markdown, CSV, LaTeX or JSON text."""
    if form == "json":
        return json.dumps(table, indent=2) + "\n"
    if form not in FORMATS:
        raise ValueError(f"a table is written as {', '.join(FORMATS)}, got {form!r}")
    sections = {title: rows for title, rows in _sections(table).items() if rows}
    columns = _columns(table)
    if form == "csv":
        return _csv(sections, columns)
    name = in_markdown if form == "md" else _in_tex
    grids = {
        title: [
            [name(row), *(_bold(table, row, c, _text(cells.get(c), form), form) for c in columns)]
            for row, cells in rows.items()
        ]
        for title, rows in sections.items()
    }
    head = ["", *map(name, columns)]
    if form == "md":
        parts, words = [], _verdicts(table, columns[0])
        for title, grid in grids.items():
            lines = [head, ["---", *["---:"] * len(columns)], *grid]
            if words:
                said = [
                    f"verdict in {columns[0]}",
                    "---",
                    *(words.get(r, "") for r in sections[title]),
                ]
                lines = [[*line, text] for line, text in zip(lines, said, strict=True)]
            text = _markdown(lines)
            parts.append(f"{title}:\n\n{text}" if title else text)
        return "\n".join([*parts, *_against(table, columns[0]), *_areas(table)])
    lines = [_tex(head)]
    for title, grid in grids.items():
        span = [rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{title}}}}} \\"] if title else []
        lines += [r"\midrule", *span, *map(_tex, grid)]
    begin = rf"\begin{{tabular}}{{l{'r' * len(columns)}}}"
    return "\n".join([begin, r"\toprule", *lines, r"\bottomrule", r"\end{tabular}", ""])


def _bold(table: Mapping[str, Any], row: str, column: str, text: str, form: str) -> str:
    """Bold where the row is ahead of every baseline by more than both intervals."""
    if not intervals.ahead(table.get("against", {}), row, column):
        return text
    return f"**{text}**" if form == "md" else rf"\textbf{{{text}}}"


def _verdicts(table: Mapping[str, Any], column: str) -> dict[str, str]:
    """{row: ahead of these, tie with those} in a column."""
    return {
        row: intervals.in_words({other: one[column]["verdict"] for other, one in others.items()})
        for row, others in table.get("against", {}).items()
        if others
    }


def _against(table: Mapping[str, Any], column: str) -> list[str]:
    """The differences of a column with their intervals as Markdown, if the table has any."""
    found = intervals.lines(table.get("against", {}), column, number)
    return [_differences(column, found)] if found else []


def _differences(what: str, lines: Sequence[Sequence[str]]) -> str:
    head = ["", "against", f"difference in {what}", *("95% over seeds", "over images"), "verdict"]
    return _markdown([head, ["---", "---", *["---:"] * 3, "---"], *lines])


def _areas(table: Mapping[str, Any]) -> list[str]:
    """The areas under the fronts of a trade-off, the smallest first, and their differences."""
    areas = table.get("areas") or {}
    order = sorted(areas, key=lambda method: areas[method]["mean"])
    if not order:
        return []
    rows = [
        [method, _text(cell(areas[method]["values"]), "md"), intervals.in_words(words)]
        for method in order
        for words in [{other: one["verdict"] for other, one in areas[method]["against"].items()}]
    ]
    pairs = {
        method: {other: {"area": areas[method]["against"][other]} for other in order[i + 1 :]}
        for i, method in enumerate(order)
    }
    head = [["", "area under the front", "verdict"], ["---", "---:", "---"]]
    found = intervals.lines(pairs, "area", number)
    return [_markdown([*head, *rows]), _differences("area", found)]


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _sections(table: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The rows of the paper, and those that are ours alone."""
    return {"": table["rows"], EXTRAS: table.get("extras", {})}


def _columns(table: Mapping[str, Any]) -> list[str]:
    rows = [cells for section in _sections(table).values() for cells in section.values()]
    return list(dict.fromkeys(column for cells in rows for column in cells))


def in_markdown(text: str) -> str:
    """A name that may come from anywhere, in a cell of a Markdown table: no HTML, no new cell."""
    escaped = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([`*\[\]|!~])", r"\\\1", escaped).replace("\n", " ")


def _in_tex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    return "".join(special.get(character, character) for character in text)


def _tex(line: Sequence[str]) -> str:
    return " & ".join(line) + r" \\"


def show(table: Mapping[str, Any], title: str, reference: Mapping[str, Any] | None = None) -> None:
    """Print the table, a block of columns at a time: ours, then the paper's and, if given, the
    committed reference's."""
    console = Console()
    console = Console(width=max(console.width, 110))
    blocks: dict[str, list[str]] = {}
    for column in _columns(table):
        blocks.setdefault(column.split("_")[0], []).append(column)
    known = {} if reference is None else {**reference["rows"], **reference.get("extras", {})}
    for block, columns in blocks.items():
        grid = Table(title=escape(f"{title} ({block})"), title_justify="left")
        for head in ("", *columns):
            grid.add_column(head, justify="left" if not head else "right", no_wrap=bool(head))
        for section, rows in _sections(table).items():
            if section and any(column in cells for cells in rows.values() for column in columns):
                grid.add_section()
                grid.add_row(f"[italic]{section}")
            for row, cells in rows.items():
                if any(column in cells for column in columns):
                    known_row = known.get(row, {})
                    grid.add_row(
                        escape(row), *(_beside(cells.get(c), known_row.get(c)) for c in columns)
                    )
        console.print(grid)
    found = intervals.lines(table.get("against", {}), _columns(table)[0], number)
    if found:
        grid = Table(title=f"{title}: differences in {_columns(table)[0]}", title_justify="left")
        for head in ("", "against", "difference", "95% over seeds", "over images", "verdict"):
            grid.add_column(head, no_wrap=True)
        for line in found:
            grid.add_row(*(text.replace("[", r"\[") for text in line))
        console.print(grid)


def _beside(entry: Mapping[str, Any] | None, reference: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "-"
    ours = _text({**entry, "paper": None}, "md")
    notes = [] if entry["paper"] is None else [f"paper {number(entry['paper'])}"]
    if reference is not None and reference["mean"] is not None:  # a cited row has none
        notes.append(f"ours {number(reference['mean'])}")
    return "\n".join([ours, *(f"[dim]{note}[/]" for note in notes)])


def write(
    table: Mapping[str, Any],
    folder: Path,
    name: str,
    draws: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Path]:
    """Write <folder>/<name>.{md,csv,tex,json}; each file is whole or not there.

    draws: {row: {column: (R,)}}, written to <name>_draws.npz as "row/column", in float32.
    """
    paths = [Path(folder) / f"{name}.{form}" for form in FORMATS]
    for path, form in zip(paths, FORMATS, strict=True):
        if form == "json":
            records.write(path, table)
        else:
            with atomic_write(path) as file:
                file.write(render(table, form).encode())
    arrays = {
        f"{row}/{column}": np.asarray(values, np.float32)
        for row, columns in (draws or {}).items()
        for column, values in columns.items()
    }
    if arrays:
        paths.append(Path(folder) / f"{name}{DRAWS}")
        with atomic_write(paths[-1]) as file:
            np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
    return paths


def stored_draws(path: Path) -> dict[str, dict[str, Any]]:
    """{row: {column: (R,)}} as `write` has kept them; none where there is no such file."""
    found: dict[str, dict[str, Any]] = {}
    if path.is_file():
        for name, values in read_npz(path, advice="Make that table again.").items():
            row, _, column = name.rpartition("/")
            found.setdefault(row, {})[column] = values
    return found


def write_benchmark(report: Mapping[str, Any], root: Path, name: str, publish: bool) -> None:
    """outputs/<name>.json; with `publish` results/<name>.json, too."""
    for folder in ("outputs", "results") if publish else ("outputs",):
        with atomic_write(root / folder / f"{name}.json") as file:
            file.write(json.dumps(report, indent=1).encode() + b"\n")


def _text(entry: Mapping[str, Any] | None, form: str) -> str:
    """`12.66 ± 0.05 (12.69)`: ours, the spread, the paper's in brackets; or that it diverged."""
    diverged = None if entry is None else entry.get("diverged")
    if entry is None or (entry["mean"] is None and entry["paper"] is None and not diverged):
        return "-" if form == "md" else "--"
    text = DIVERGED if diverged else "-" if entry["mean"] is None else number(entry["mean"])
    if entry["std"] is not None:
        text += (" ± " if form == "md" else r" $\pm$ ") + number(entry["std"])
    return text if entry["paper"] is None else f"{text} ({number(entry['paper'])})"


def number(value: float) -> str:
    """Three digits after the point, two from ten on, none from a thousand on; what would be shown
    as zero keeps its size."""
    size = abs(value)
    text = f"{value:.3f}" if size < 10 else f"{value:.2f}" if size < 1000 else f"{value:.0f}"
    return text if float(text) or not value else f"{value:.0e}"


def _csv(sections: Mapping[str, Any], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "mean", "std", "seeds", "paper"])
    for rows in sections.values():
        for row, cells in rows.items():
            for column in (column for column in columns if column in cells):
                values = (cells[column][key] for key in ("mean", "std", "seeds", "paper"))
                writer.writerow([row, column, *values])
    return text.getvalue()
