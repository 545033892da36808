"""A table is data: rows, columns, mean and spread over seeds, and the published value next to each.

{"rows": {row: {column: {"mean", "std", "seeds", "values", "paper"}}},
 "seeds": {row: [[of stage 1, of stage 2]]}, "against": see intervals.py,
 "meta": {"commit", "command", "machine", "seconds", "versions"}}
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from datasets.io.arrays import read_npz
from datasets.io.files import atomic_write
from engine.runs import records
from engine.tables.columns import all_rows, benchmark_of, column, columns_of, heads
from engine.tables.intervals import Content, Replicates, is_ahead

FORMATS = ("md", "csv", "tex")
EXTRAS = "Not in the paper"
DIVERGED = "diverged"
REPLICATES = "_draws.npz"  # suffix of the file of a table's bootstrap replicates
LEGEND = "**Bold**: ahead of every row that it is compared with, by both 95% intervals.\n"
TEX = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "δ₁": r"$\delta_1$"}
TEX |= {"↓": r"$\downarrow$", "↑": r"$\uparrow$", **{c: f"\\{c}" for c in "&%$#_{}"}}


def cell(values: Sequence[float | str | None], paper: float | None = None) -> dict[str, Any]:
    """Return mean and sample standard deviation over seeds, without a mean if a run DIVERGED."""
    found: dict[str, Any] = {"mean": None, "std": None, "seeds": len(values), "paper": paper}
    if diverged := sum(value == DIVERGED for value in values):
        return {**found, "diverged": diverged}
    kept = [v if isinstance(v, int | float) and math.isfinite(v) else None for v in values]
    finite = [value for value in kept if value is not None]
    if finite:
        found["mean"] = mean = sum(finite) / len(finite)
        if len(finite) > 1:
            found["std"] = math.sqrt(sum((v - mean) ** 2 for v in finite) / (len(finite) - 1))
    return {**found, "seeds": len(finite), "values": kept}


def render(table: Content, form: str = "md", file: str = "") -> str:
    """Return the table as Markdown, CSV or LaTeX; `file`: the name of its file."""
    names, against = columns_of(table), table.get("against") or {}
    if form == "csv":
        keys = ["row", "column", "mean", "std", "seeds", "paper"]
        rows = [(row, n, of[n]) for row, of in all_rows(table).items() for n in names if n in of]
        lines = [{"row": row, "column": name, **one} for row, name, one in rows]
        return pd.DataFrame(lines, columns=keys, dtype=object).to_csv(index=False)
    quote, bold = (in_markdown, "**{}**") if form == "md" else (in_tex, r"\textbf{{{}}}")
    head = heads(benchmark_of(file, table), names)
    grids = {}
    for title, rows in sections_of(table).items():
        grids[title] = [["", *map(quote, head)]]
        for row, cells in rows.items():
            texts = {name: text(cells.get(name), form) for name in names}
            texts |= {n: bold.format(texts[n]) for n in names if is_ahead(against, row, n)}
            grids[title].append([quote(row), *texts.values()])
    if form == "tex":
        return _tex(grids)
    blocks = [f"{title}:\n\n{markdown(g)}" if title else markdown(g) for title, g in grids.items()]
    ranks = table.get("ranks")
    compared = list(zip(names, head, strict=True))[: None if ranks else 1]
    found = [differences(against, name, title.rstrip(" ↓↑")) for name, title in compared]
    if any(found):
        blocks += [LEGEND, *(markdown(grid) for grid in found if grid)]
    if ranks:
        rows = [[in_markdown(row), number(rank)] for row, rank in ranks["mean"].items()]
        about = f"critical difference {number(ranks['critical'])}"
        blocks.append(markdown([["", f"Mean rank ({about})"], *rows]))
    areas = table.get("areas") or {}
    if order := sorted(areas, key=lambda method: areas[method]["mean"]):
        rows = [[method, text(cell(areas[method]["values"]))] for method in order]
        blocks.append(markdown([["", "Area under the front"], *rows]))
        pairs = {
            method: {other: {"area": areas[method]["against"][other]} for other in order[i + 1 :]}
            for i, method in enumerate(order)
        }
        blocks += [markdown(grid) for grid in [differences(pairs, "area", "area")] if grid]
    return "\n".join(blocks)


def differences(against: Mapping[str, Any], name: str, title: str) -> list[list[str]]:
    """Return a grid of the differences in a column, with intervals; each pair of rows once."""

    def ends(interval: Sequence[float] | None) -> str:
        return "-" if interval is None else f"[{number(interval[0])}, {number(interval[1])}]"

    found, seen = [], set()
    for row, others in against.items():
        for other, columns in others.items():
            one = columns.get(name, {})
            later = row in against.get(other, {}) and other not in seen
            if one.get("mean") is not None and not later:
                intervals = ends(one["seeds"]), ends(one["images"])
                found.append([row, other, number(one["mean"]), *intervals, one["verdict"]])
        seen.add(row)
    head = ["", "Compared with", f"Difference in {title}", "95% CI, seeds", "95% CI, test images"]
    return [[*head, "Verdict"], *found] if found else []


def markdown(grid: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; columns of numbers are aligned to the right."""
    rule = ["---" if re.search("[A-Za-z]", text) else "---:" for text in grid[-1]]
    return "".join(f"| {' | '.join(line)} |\n" for line in (grid[0], rule, *grid[1:]))


def sections_of(table: Content) -> dict[str, Content]:
    """Return the paper's rows and, if there are any, ours: {title: {row: cells}}."""
    sections = {"": table["rows"], EXTRAS: table.get("extras", {})}
    return {title: rows for title, rows in sections.items() if rows}


def in_markdown(name: str) -> str:
    """Escape a name for a cell of a Markdown table: no HTML, no new cell."""
    escaped = name.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([`*\[\]|!~])", r"\\\1", escaped).replace("\n", " ")


def in_tex(name: str) -> str:
    return re.sub("|".join(map(re.escape, TEX)), lambda found: TEX[found[0]], name)


def _tex(grids: Mapping[str, Sequence[Sequence[str]]]) -> str:
    lines = []
    for title, (head, *rows) in grids.items():
        if not lines:
            begin = rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
            lines = [begin, r"\toprule", " & ".join(head) + r" \\"]
        span = [rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{title}}}}} \\"] if title else []
        lines += [r"\midrule", *span, *(" & ".join(row) + r" \\" for row in rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def show(table: Content, title: str, reference: Content | None = None) -> None:
    """Print the table by metric: our numbers, the paper's, and those of the committed reference."""
    names, benchmark = columns_of(table), benchmark_of("", table)
    known = all_rows(reference or {"rows": {}})

    def lines(row: str, name: str, entry: Mapping[str, Any] | None) -> str:
        """Return our number, the paper's and that of the reference, one below the other."""
        old = known.get(row, {}).get(name) or {}
        others = {"paper": entry["paper"], "ours": old.get("mean")} if entry else {}
        more = [f"{which} {number(value)}" for which, value in others.items() if value is not None]
        return "\n".join([text(entry, paper=False), *more])

    metrics: dict[str, list[str]] = {}
    for name in names:
        metrics.setdefault(column(benchmark, name).title.split("_")[0], []).append(name)
    for metric, own in metrics.items():
        grid = [["", *heads(benchmark, own)]]
        for section, rows in sections_of(table).items():
            shown = {row: cells for row, cells in rows.items() if cells.keys() & set(own)}
            grid += [[section]] if section and shown else []
            grid += [[r, *(lines(r, n, cells.get(n)) for n in own)] for r, cells in shown.items()]
        _print(f"{title} ({metric})", grid)
    about = heads(benchmark, names[:1])[0]
    if found := differences(table.get("against") or {}, names[0], about):
        _print(f"{title}: differences in {about}", found)


def _print(title: str, grid: Sequence[Sequence[str]]) -> None:
    printed = Table(title=escape(title), title_justify="left")
    for i, head in enumerate(grid[0]):  # a header may be wrapped, a cell may not
        texts = [text for row in grid[1:] for text in "".join(row[i : i + 1]).split("\n")]
        width = max(map(len, texts), default=0)
        printed.add_column(head, justify="right" if head else "left", min_width=width)
    for line in grid[1:]:
        printed.add_row(*map(escape, line))
    Console(width=max(Console().width, 110)).print(printed)


def text(entry: Mapping[str, Any] | None, form: str = "md", paper: bool = True) -> str:
    """`12.66 ± 0.05 (12.69)`: our mean, the spread, the paper's number; or "diverged"."""
    entry = entry or {}
    mean, std, cited = (entry.get(key) for key in ("mean", "std", "paper"))
    shown = "-" if form == "md" or cited is not None else "--"
    if entry.get("diverged") or mean is not None:
        shown = DIVERGED if mean is None else number(mean)
    if std is not None:
        shown += (" ± " if form == "md" else r" $\pm$ ") + number(std)
    return f"{shown} ({number(cited)})" if paper and cited is not None else shown


def number(value: float) -> str:
    """Round to three decimals, two from ten on, none from a thousand on; never to zero."""
    size = abs(value)
    text = f"{value:.3f}" if size < 10 else f"{value:.2f}" if size < 1000 else f"{value:.0f}"
    return text if float(text) or not value else f"{value:.0e}"


def write(
    table: Content, folder: Path, name: str, replicates: Replicates | None = None
) -> list[Path]:
    """Write <folder>/<name>.{md,csv,tex,json} and <name>_draws.npz, the replicates {row: {column:
    (R,)}} as "row/column" in float32; return the paths."""
    paths = [*write_texts(table, folder, name), folder / f"{name}.json"]
    records.write(paths[-1], table)
    arrays = {
        f"{row}/{column}": np.asarray(values, np.float32)
        for row, columns in (replicates or {}).items()
        for column, values in columns.items()
    }
    return paths + write_npz(folder / f"{name}{REPLICATES}", arrays)


def write_npz(path: Path, arrays: Mapping[str, Any]) -> list[Path]:
    """Write arrays to a compressed file and return [its path]; nothing if there are none."""
    if not arrays:
        return []
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
    return [path]


def write_texts(table: Content, folder: Path, name: str) -> list[Path]:
    """Write what is rendered from the JSON: <folder>/<name>.{md,csv,tex}."""
    paths = [folder / f"{name}.{form}" for form in FORMATS]
    for path, form in zip(paths, FORMATS, strict=True):
        with atomic_write(path) as file:
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
