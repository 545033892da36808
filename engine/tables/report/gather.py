"""Collect the content of the report: tables of the paper, our measurements of each, and figures.

configs/table/<table>.yaml                 the paper's numbers (cited); its benchmark
<results>/<name>.json, <outputs>/...       measurements (mini data, or real data)
.../figures/<name>_<kind>.png              figures of the measurement <name>
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from engine.runs import records
from engine.tables.columns import all_rows, benchmark_of, columns_of, table_configs, table_of
from engine.tables.table import cell


class Source(NamedTuple):
    """A measurement: its file and content, and whether its data is `mini` or `real`."""

    name: str
    mark: str
    path: Path
    content: Mapping[str, Any]

    @property
    def provenance(self) -> dict[str, str]:
        """How the measurement was made; seeds are e.g. `3`, or `1 to 3` if rows differ."""
        cells = (cell for row in all_rows(self.content).values() for cell in row.values())
        counts = sorted({cell["seeds"] for cell in cells if cell["seeds"]}) or [0]
        meta = self.content.get("meta", {})
        seconds = meta.get("cpu_seconds") or meta.get("seconds")
        changed = ", with local changes" if meta.get("changed") else ""
        return {
            "file": relative(self.path, Path.cwd()),
            "command": str(meta.get("command", "unknown")),
            "commit": str(meta.get("commit") or "unknown")[:10] + changed,
            "seeds": " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))),
            "machine": str(meta.get("machine", "unknown")),
            "time": "unknown" if seconds is None else f"{seconds:,.0f} s",
        }


class Row(NamedTuple):
    """A line of a table: `cited`, `mini` or `real` numbers, and the measurement they are from."""

    method: str
    mark: str
    origin: str
    cells: Mapping[str, Any]
    against: Mapping[str, Any]


class Figure(NamedTuple):
    path: Path
    kind: str
    source: Source


@dataclass
class Section:
    """One table of the paper with all that we measured for it."""

    name: str
    title: str
    columns: list[str]
    benchmark: Mapping[str, Any]
    rows: list[Row] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def relative(path: Path, start: Path) -> str:
    return Path(os.path.relpath(path, start)).as_posix()


def gather(results: Path, outputs: Path | None = None) -> list[Section]:
    """Return the sections of the report. `outputs`: the folder of this machine's tables, if any."""
    sections = {
        name: Section(name, table["title"], list(table["columns"]), table["benchmark"])
        for name, table in table_configs().items()
    }
    own = outputs.glob("*/*.json") if outputs is not None else []
    sources, figures = [], {}
    for folder in [results, *sorted({path.parent for path in own})]:
        where = "" if folder == results else " (this machine)"
        for path in sorted(folder.glob("*.json")):
            sources += read(path, where)
        for path in sorted((folder / "figures").glob("*.png")):
            if not path.is_symlink() and not path.parent.is_symlink():  # it could show any file
                figures[path.name] = path  # the newest
    for source in sources:
        name = table_of(source.path.stem, source.content) or source.path.stem
        if name not in sections:
            benchmark = benchmark_of(source.path.stem, source.content)
            sections[name] = Section(name, name, columns_of(source.content), benchmark)
        sections[name].sources.append(source)
    for section in sections.values():
        section.rows = rows_of(section, table_configs().get(section.name, {}))
    for path in figures.values():
        fits = [source for source in sources if path.stem.startswith(f"{source.path.stem}_")]
        if fits:  # the longest name, preferably in the same folder
            near = path.parent.parent
            source = max(fits, key=lambda s: (len(s.path.stem), s.path.parent == near))
            section = next(one for one in sections.values() if source in one.sources)
            kind = path.stem.removeprefix(f"{source.path.stem}_")
            section.figures.append(Figure(path, kind, source))
    return [section for section in sections.values() if section.rows]


def read(path: Path, where: str) -> list[Source]:
    """Return the measurement of a file, if it holds a table with rows."""
    content = records.read(path, f"Rerun that table, or remove {path}.")
    if not isinstance(content.get("rows"), dict):
        return []
    # real poses on generated bodies are generated data, too
    command = content.get("meta", {}).get("command", "")
    mini = path.stem.endswith("_mini") or "paths=mini" in command
    return [Source(path.stem + where, "mini" if mini else "real", path, content)]


def rows_of(section: Section, config: Mapping[str, Any]) -> list[Row]:
    """Return every method of the paper and of ours; the paper's numbers first, ours below."""
    paper, lines = config.get("paper") or {}, []
    ours = (method for source in section.sources for method in all_rows(source.content))
    for method in dict.fromkeys([*paper, *ours]):
        if method in paper:
            pairs = zip(section.columns, paper[method], strict=True)
            cited = {name: cell([], value) for name, value in pairs}
            lines.append(Row(method, "cited", "paper", cited, {}))
        for source in section.sources:
            cells = all_rows(source.content).get(method, {})
            if any(one["mean"] is not None or one.get("diverged") for one in cells.values()):
                against = source.content.get("against") or {}
                lines.append(Row(method, source.mark, source.name, cells, against))
    return lines
