"""Render the report as one self-contained HTML page, and as Markdown."""

import base64
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from omegaconf import DictConfig

from datasets.io.files import atomic_write
from engine import RESULTS
from engine.runs.provenance import meta
from engine.tables.columns import column, heads
from engine.tables.intervals import is_ahead
from engine.tables.report import forest, summary
from engine.tables.report.gather import Row, Section, gather, relative
from engine.tables.table import DIVERGED, in_markdown, number

MARKS = {
    "cited": "printed in the paper, or published with it; not measured here",
    "real": "measured here on real data (synthetic benchmark: on the paper's generator)",
    "mini": "measured here on a generated dataset in the format of the real one; "
    "shows that the code runs and in which direction methods differ, not the paper's numbers",
}


def main(cfg: DictConfig) -> None:
    outputs = Path(cfg.outputs)
    if cfg.own and not outputs.is_dir():
        print(f"{outputs}: no such folder, so the report shows results/ alone.")
    if cfg.publish:
        summary.publish()
        forest.write(RESULTS)
    for path in write(outputs, cfg.own):
        print(path)


def head(section: Section) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the two header lines of a table: groups with their widths, and column names."""
    columns = [column(section.benchmark, name) for name in section.columns]
    upper, lower = [], []
    for group, members in groupby(columns, key=lambda one: one.group):
        parts = [one.part for one in members]
        single = len(parts) == 1
        upper.append(("" if single else group, len(parts)))
        lower += [group] if single else parts
    return upper, lower


def value(entry: Mapping[str, Any] | None, mark: str) -> float | None:
    """Return the number that a cell shows and is sorted by."""
    return None if entry is None else entry["paper" if mark == "cited" else "mean"]


def text(section: Section, row: Row, name: str) -> str:
    """Return the text of a cell: our mean ± std, or the paper's number with the paper's digits."""
    entry, shown = row.cells.get(name), value(row.cells.get(name), row.mark)
    if entry is None or shown is None:
        return DIVERGED if entry is not None and entry.get("diverged") else "-"
    if row.mark == "cited":
        printed = (value(r.cells.get(name), r.mark) for r in section.rows if r.mark == "cited")
        digits = max(decimals(str(v)) for v in printed if v is not None)
        return f"{shown:.{min(digits, decimals(number(shown)))}f}"
    return number(shown) + ("" if entry["std"] is None else f" ± {number(entry['std'])}")


def decimals(shown: str) -> int:
    """Count the digits after the point; 130.0 has one."""
    return len(shown.partition(".")[2])


def render(template: str, sections: Sequence[Section], meta: Mapping[str, Any], **more: Any) -> str:
    """Fill page.html or page.md."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("page")),
        autoescape=template.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {
        "md": in_markdown,
        "base64": lambda path: base64.b64encode(path.read_bytes()).decode(),
    }
    functions = (head, heads, is_ahead, relative, text, value)
    environment.globals |= {function.__name__: function for function in functions}
    values = {"sections": sections, "meta": meta, "MARKS": MARKS, **more}
    return environment.get_template(template).render(values)


def write(outputs: Path, own: bool = True) -> list[Path]:
    """Write report.html and report.md to `outputs` and return their paths."""
    sections, about = gather(RESULTS, outputs if own else None), meta()
    paths = [outputs / "report.html", outputs / "report.md"]
    for path in paths:
        content = render(f"page{path.suffix}", sections, about, folder=outputs)
        with atomic_write(path) as file:
            file.write(content.encode())
    return paths
