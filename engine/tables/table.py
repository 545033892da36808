"""A table is data: rows, columns, mean and spread over seeds, and the published value next to each.

    {"rows": {row: {column: {"mean", "std", "seeds", "values", "paper"}}},
     "seeds": {row: [[of stage 1, of stage 2]]}, "against": see intervals.py,
     "meta": {"commit", "command", "machine", "seconds", "versions"}}

It is stored as JSON. Markdown, CSV, LaTeX and what is printed are rendered from that.
"""

import csv
import io
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
from engine.tables.columns import benchmark_of, column, heads
from engine.tables.intervals import is_ahead

FORMATS = ("md", "csv", "tex")
EXTRAS = "Not in the paper"
DIVERGED = "diverged"
REPLICATES = "_draws.npz"  # suffix of the file of a table's bootstrap replicates
DIFFERENCE = ("95% CI, seeds", "95% CI, test images", "Verdict")
LEGEND = "**Bold**: ahead of every row that it is compared with, by both 95% intervals.\n"
TEX = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "δ₁": r"$\delta_1$"}
TEX |= {"↓": r"$\downarrow$", "↑": r"$\uparrow$", **{c: f"\\{c}" for c in "&%$#_{}"}}


def cell(values: Sequence[float | str | None], paper: float | None = None) -> dict[str, Any]:
    """Return mean and sample standard deviation over seeds; one seed has no spread.

    If a run DIVERGED there is no mean: that of the other runs would look like a result.
    """
    if diverged := sum(value == DIVERGED for value in values):
        empty = {"mean": None, "std": None, "seeds": len(values), "paper": paper}
        return {**empty, "diverged": diverged}
    kept = [v if isinstance(v, int | float) and math.isfinite(v) else None for v in values]
    finite = [value for value in kept if value is not None]
    mean = sum(finite) / len(finite) if finite else None
    std = None
    if mean is not None and len(finite) > 1:
        std = math.sqrt(sum((value - mean) ** 2 for value in finite) / (len(finite) - 1))
    return {"mean": mean, "std": std, "seeds": len(finite), "values": kept, "paper": paper}


def render(table: Mapping[str, Any], form: str = "md", file: str = "") -> str:
    """Return the table as Markdown, CSV or LaTeX; `file`: the name of its file."""
    if form not in FORMATS:
        raise ValueError(f"Unknown format {form!r}; choose from {', '.join(FORMATS)}.")
    sections, names = sections_of(table), columns_of(table)
    benchmark = benchmark_of(file, table)
    if form == "csv":
        return _csv(sections, names)
    quote = in_markdown if form == "md" else in_tex
    head = ["", *map(quote, heads(benchmark, names))]
    grids = {
        title: [[quote(row), *(_bold(table, row, name, form) for name in names)] for row in rows]
        for title, rows in sections.items()
    }
    if form == "tex":
        return _tex(head, grids)
    blocks = []
    for title, grid in grids.items():
        text = markdown([head, ["---", *["---:"] * len(names)], *grid])
        blocks.append(f"{title}:\n\n{text}" if title else text)
    about = heads(benchmark, names[:1])[0].rstrip(" ↓↑")
    found = _differences(table.get("against") or {}, names[0], about)
    return "\n".join([*blocks, *([LEGEND] if found else []), *found, *_areas(table)])


def _bold(table: Mapping[str, Any], row: str, name: str, form: str) -> str:
    """Return a cell, bold if the row is ahead of every baseline."""
    cells = {**table["rows"], **table.get("extras", {})}[row]
    text = _text(cells.get(name), form)
    if not is_ahead(table.get("against") or {}, row, name):
        return text
    return f"**{text}**" if form == "md" else rf"\textbf{{{text}}}"


def _differences(against: Mapping[str, Any], name: str, title: str) -> list[str]:
    """Return the differences in a column with their intervals, as Markdown."""
    found = differences(against, name)
    head = ["", "Compared with", f"Difference in {title}", *DIFFERENCE]
    return [markdown([head, ["---", "---", *["---:"] * 3, "---"], *found])] if found else []


def differences(against: Mapping[str, Any], name: str) -> list[list[str]]:
    """Return [row, baseline, difference, both intervals, verdict] in a column, each pair once."""

    def ends(interval: Sequence[float] | None) -> str:
        return "-" if interval is None else f"[{number(interval[0])}, {number(interval[1])}]"

    found, seen = [], set()
    for row, others in against.items():
        for other, columns in others.items():
            one = columns[name]
            later = row in against.get(other, {}) and other not in seen
            if one["mean"] is not None and not later:
                intervals = ends(one["seeds"]), ends(one["images"])
                found.append([row, other, number(one["mean"]), *intervals, one["verdict"]])
        seen.add(row)
    return found


def _areas(table: Mapping[str, Any]) -> list[str]:
    """Return the areas under the fronts of a trade-off, smallest first, and their differences."""
    areas = table.get("areas") or {}
    order = sorted(areas, key=lambda method: areas[method]["mean"])
    if not order:
        return []
    rows = [[method, _text(cell(areas[method]["values"]), "md")] for method in order]
    pairs = {
        method: {other: {"area": areas[method]["against"][other]} for other in order[i + 1 :]}
        for i, method in enumerate(order)
    }
    head = [["", "Area under the front"], ["---", "---:"]]
    return [markdown([*head, *rows]), *_differences(pairs, "area", "area")]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def sections_of(table: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the paper's rows and, if there are any, ours: {title: {row: cells}}."""
    sections = {"": table["rows"], EXTRAS: table.get("extras", {})}
    return {title: rows for title, rows in sections.items() if rows}


def columns_of(table: Mapping[str, Any]) -> list[str]:
    rows = [cells for section in sections_of(table).values() for cells in section.values()]
    return list(dict.fromkeys(name for cells in rows for name in cells))


def in_markdown(text: str) -> str:
    """Escape a name for a cell of a Markdown table: no HTML, no new cell."""
    escaped = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([`*\[\]|!~])", r"\\\1", escaped).replace("\n", " ")


def in_tex(text: str) -> str:
    return re.sub("|".join(map(re.escape, TEX)), lambda found: TEX[found[0]], text)


def _tex(head: Sequence[str], grids: Mapping[str, Sequence[Sequence[str]]]) -> str:
    lines = [" & ".join(head) + r" \\"]
    for title, grid in grids.items():
        span = [rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{title}}}}} \\"] if title else []
        lines += [r"\midrule", *span, *(" & ".join(line) + r" \\" for line in grid)]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
    return "\n".join([begin, r"\toprule", *lines, r"\bottomrule", r"\end{tabular}", ""])


def _csv(sections: Mapping[str, Any], names: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "mean", "std", "seeds", "paper"])
    for rows in sections.values():
        for row, cells in rows.items():
            for name in (name for name in names if name in cells):
                values = (cells[name][key] for key in ("mean", "std", "seeds", "paper"))
                writer.writerow([row, name, *values])
    return text.getvalue()


def show(table: Mapping[str, Any], title: str, reference: Mapping[str, Any] | None = None) -> None:
    """Print the table, one metric at a time: our numbers, then those of the paper and, if given, of
    the committed reference."""
    console = Console()
    console = Console(width=max(console.width, 110))
    names, about = columns_of(table), benchmark_of("", table)
    known = {} if reference is None else {**reference["rows"], **reference.get("extras", {})}
    metrics = dict.fromkeys(column(about, name).title.split("_")[0] for name in names)
    for metric in metrics:
        own = [name for name in names if column(about, name).title.split("_")[0] == metric]
        grid = Table("", title=escape(f"{title} ({metric})"), title_justify="left")
        for head in heads(about, own):
            grid.add_column(head, justify="right", no_wrap=True)
        for section, rows in sections_of(table).items():
            if section and any(name in cells for cells in rows.values() for name in own):
                grid.add_section()
                grid.add_row(f"[italic]{section}")
            for row, cells in rows.items():
                if any(name in cells for name in own):
                    old = known.get(row, {})
                    grid.add_row(escape(row), *(_beside(cells.get(n), old.get(n)) for n in own))
        console.print(grid)
    found = differences(table.get("against") or {}, names[0])
    if found:
        head = heads(about, names[:1])[0]
        grid = Table(title=escape(f"{title}: differences in {head}"), title_justify="left")
        for text in ("", "Compared with", "Difference", *DIFFERENCE):
            grid.add_column(text, no_wrap=True)
        for line in found:
            grid.add_row(*map(escape, line))
        console.print(grid)


def _beside(entry: Mapping[str, Any] | None, reference: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "-"
    notes = [] if entry["paper"] is None else [f"paper {number(entry['paper'])}"]
    if reference is not None and reference["mean"] is not None:  # cited rows have none
        notes.append(f"ours {number(reference['mean'])}")
    shown = _text({**entry, "paper": None}, "md")
    return "\n".join([shown, *(f"[dim]{note}[/]" for note in notes)])


def _text(entry: Mapping[str, Any] | None, form: str) -> str:
    """`12.66 ± 0.05 (12.69)`: our mean, the spread, the paper's number; or "diverged"."""
    diverged = None if entry is None else entry.get("diverged")
    if entry is None or (entry["mean"] is None and entry["paper"] is None and not diverged):
        return "-" if form == "md" else "--"
    text = DIVERGED if diverged else "-" if entry["mean"] is None else number(entry["mean"])
    if entry["std"] is not None:
        text += (" ± " if form == "md" else r" $\pm$ ") + number(entry["std"])
    return text if entry["paper"] is None else f"{text} ({number(entry['paper'])})"


def number(value: float) -> str:
    """Round to three decimals, two from ten on, none from a thousand on; never to zero."""
    size = abs(value)
    text = f"{value:.3f}" if size < 10 else f"{value:.2f}" if size < 1000 else f"{value:.0f}"
    return text if float(text) or not value else f"{value:.0e}"


def write(
    table: Mapping[str, Any],
    folder: Path,
    name: str,
    replicates: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Path]:
    """Write <folder>/<name>.{md,csv,tex,json} and return the paths.

    replicates: {row: {column: (R,)}}, written to <name>_draws.npz as "row/column", in float32.
    """
    paths = write_texts(table, folder, name)
    paths.append(folder / f"{name}.json")
    records.write(paths[-1], table)
    arrays = {
        f"{row}/{column}": np.asarray(values, np.float32)
        for row, columns in (replicates or {}).items()
        for column, values in columns.items()
    }
    if arrays:
        paths.append(folder / f"{name}{REPLICATES}")
        with atomic_write(paths[-1]) as file:
            np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
    return paths


def write_texts(table: Mapping[str, Any], folder: Path, name: str) -> list[Path]:
    """Write what is rendered from the JSON: <folder>/<name>.{md,csv,tex}."""
    paths = []
    for form in FORMATS:
        paths.append(folder / f"{name}.{form}")
        with atomic_write(paths[-1]) as file:
            file.write(render(table, form, name).encode())
    return paths


def read_replicates(path: Path) -> dict[str, dict[str, Any]]:
    """Return {row: {column: (R,)}} as `write` stored them; empty if there is no such file."""
    found: dict[str, dict[str, Any]] = {}
    if path.is_file():
        for name, values in read_npz(path, advice="Rerun that table.").items():
            row, _, column = name.rpartition("/")
            found.setdefault(row, {})[column] = values
    return found
