"""The report as one HTML page that needs nothing else, and as Markdown."""

import base64
import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from datasets.io.files import atomic_write
from engine import RESULTS
from engine.runs.provenance import meta
from engine.tables import intervals
from engine.tables.columns import column
from engine.tables.report.gather import Row, Section, gather
from engine.tables.table import DIVERGED, in_markdown, number

HERE = Path(__file__).parent
MARKS = {
    "cited": "printed in the paper, or published with it; not measured here",
    "real": "measured here on real data (in the synthetic benchmark: on the paper's own generator)",
    "mini": "measured here on a generated dataset in the real one's format; "
    "shows that the code runs and which way methods differ, not the paper's numbers",
}


def head(section: Section) -> tuple[list[tuple[str, int]], list[str]]:
    """The two lines of a table's head: groups with their widths, and a name for each column."""
    names = [column(section.benchmark, name) for name in section.columns]
    upper, lower = [], []
    for group, of in groupby(names, key=lambda one: one.group):
        parts = [one.part for one in of]
        single = len(parts) == 1
        upper.append(("" if single else group, len(parts)))
        lower += [group] if single else parts
    return upper, lower


def value(entry: Mapping[str, Any] | None, mark: str) -> float | None:
    """What a cell shows and is sorted by."""
    return None if entry is None else entry["paper" if mark == "cited" else "mean"]


def text(section: Section, row: Row, name: str) -> str:
    """A cell as it is shown: mean ± std of ours, the paper's with as many digits as it prints."""
    entry, shown = row.cells.get(name), value(row.cells.get(name), row.mark)
    if entry is None or shown is None:
        return DIVERGED if entry is not None and entry.get("diverged") else "-"
    if row.mark == "cited":
        printed = (value(r.cells.get(name), r.mark) for r in section.rows if r.mark == "cited")
        digits = max(decimals(str(v)) for v in printed if v is not None)
        return f"{shown:.{min(digits, decimals(number(shown)))}f}"
    return number(shown) + ("" if entry["std"] is None else f" ± {number(entry['std'])}")


def decimals(shown: str) -> int:
    """Digits after the point; 130.0 has one."""
    return len(shown.partition(".")[2])


def ahead(section: Section, row: Row, name: str) -> bool:
    """Whether a measured row is ahead of every baseline by more than its intervals: shown bold."""
    against = next(
        (s.content.get("against") for s in section.sources if s.name == row.origin), None
    )
    return intervals.ahead(against or {}, row.method, name)


def provenance(source: Any) -> dict[str, str]:
    """How a measurement was made, for the reader who wants to make it again."""
    meta = source.content.get("meta", {})
    commit = str(meta.get("commit") or "unknown")[:10]
    seconds = meta.get("cpu_seconds") or meta.get("seconds")
    return {
        "file": relative(source.path, Path.cwd()),
        "command": str(meta.get("command", "unknown")),
        "commit": commit + (", with local changes" if meta.get("changed") else ""),
        "seeds": source.seeds,
        "machine": str(meta.get("machine", "unknown")),
        "took": "unknown" if seconds is None else f"{seconds:,.0f} s",
    }


def relative(path: Path, start: Path) -> str:
    return Path(os.path.relpath(path, start)).as_posix()


def embedded(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()


def html(sections: Sequence[Section], meta: Mapping[str, Any]) -> str:
    """The page, with styles, scripts and figures in it."""
    loader = FileSystemLoader(HERE)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals |= {
        "ahead": ahead,
        "embedded": embedded,
        "head": head,
        "provenance": provenance,
        "text": text,
        "value": value,
        "MARKS": MARKS,
    }
    return environment.get_template("page.html").render(sections=sections, meta=meta)


def markdown(sections: Sequence[Section], meta: Mapping[str, Any], folder: Path) -> str:
    """The same tables and figures; `folder` is where the file will be, for relative links."""
    lines = ["# Balanced MSE, reproduced", "", f"Made from commit {meta['commit']}.", ""]
    lines += [f"- **{mark}**: {what}" for mark, what in MARKS.items()]
    for section in sections:
        lines += ["", f"## {in_markdown(section.title)}", "", *_table(section)]
        for source in section.sources:
            about = provenance(source)
            lines += ["", f"`{source.name}`: `{about['command']}`; commit {about['commit']}; "]
            lines[-1] += f"seeds {about['seeds']}; {about['machine']}; {about['took']}."
        for figure in section.figures:
            lines += ["", f"![{figure.path.stem}]({relative(figure.path, folder)})"]
            if figure.source is not None:
                about = provenance(figure.source)
                lines += ["", f"*{figure.path.stem}: `{about['command']}`, {about['commit']}*"]
    return "\n".join(lines) + "\n"


def write(outputs: Path, own: bool = True) -> list[Path]:
    """The paths of the page and of its Markdown."""
    sections = gather(RESULTS, outputs if own else None)
    about = meta()
    texts = {"html": html(sections, about), "md": markdown(sections, about, outputs)}
    paths = []
    for form, text in texts.items():
        path = outputs / f"report.{form}"
        with atomic_write(path) as file:
            file.write(text.encode())
        paths.append(path)
    return paths


def _table(section: Section) -> list[str]:
    if not section.rows:
        return []
    abouts = [column(section.benchmark, name) for name in section.columns]
    widths = {about.group: sum(a.group == about.group for a in abouts) for about in abouts}
    heads = [a.group if widths[a.group] == 1 else f"{a.group} {a.part}" for a in abouts]
    head = ["Method", "", "Origin", *map(in_markdown, heads)]
    lines = [head, ["---"] * 3 + ["---:"] * len(heads)]
    for row in section.rows:
        cells = []
        for name in section.columns:
            shown = text(section, row, name)
            cells.append(f"**{shown}**" if ahead(section, row, name) else shown)
        lines.append([in_markdown(row.method), row.mark, in_markdown(row.origin), *cells])
    return [f"| {' | '.join(line)} |" for line in lines]
