"""The report: every table of the paper with our measurements and figures, as one self-contained
HTML page and as Markdown.

configs/table/<table>.yaml                 the paper's numbers (cited); its benchmark
<results>/<name>.json, <outputs>/...       measurements (mini data, or real data)
.../figures/<name>_<kind>.png              figures of the measurement <name>

a section  name, title, columns, benchmark, sources, rows
a source   a measurement: name, mark (mini or real data), path, content, provenance, figures
a row      method, mark (cited, mini or real), origin, cells {column: cell}, against
"""

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace as Record
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from omegaconf import DictConfig

from datasets.io.files import atomic_write
from engine import RESULTS
from engine.runs import records
from engine.tables.columns import all_rows, benchmark_of, columns_of, heads, table_configs, table_of
from engine.tables.intervals import is_ahead
from engine.tables.report import leverage, summary
from engine.tables.table import cell, in_markdown, text

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
        leverage.write(RESULTS)
    for path in write(outputs, cfg.own):
        print(path)


def gather(results: Path, outputs: Path | None = None) -> list[Record]:
    """Return the sections of the report. `outputs`: the folder of this machine's tables, if any."""
    found: dict[str, list[Record]] = {name: [] for name in table_configs()}
    own = outputs.glob("*/*.json") if outputs is not None else []
    figures = {}
    for folder in [results, *sorted({path.parent for path in own})]:
        for path in sorted(folder.glob("*.json")):
            content = records.read(path, f"Rerun that table, or remove {path}.")
            if isinstance(content.get("rows"), dict):
                where = "" if folder == results else " (this machine)"
                name = table_of(path.stem, content) or path.stem
                found.setdefault(name, []).append(source_of(path, content, where))
        for path in sorted((folder / "figures").glob("*.png")):
            if not path.is_symlink() and not path.parent.is_symlink():  # it could show any file
                figures[path.name] = path  # the newest
    for path in figures.values():
        known = [source for sources in found.values() for source in sources]
        fits = [source for source in known if path.stem.startswith(f"{source.path.stem}_")]
        near = path.parent.parent  # the longest name, preferably in the same folder
        fits.sort(key=lambda source: (len(source.path.stem), source.path.parent == near))
        for source in fits[-1:]:
            source.figures[path.stem.removeprefix(f"{source.path.stem}_")] = path
    sections = []
    for name, sources in found.items():
        about = table_configs().get(name)
        if about is None:
            content = sources[0].content
            about = {"columns": columns_of(content), "benchmark": benchmark_of(name, content)}
        section = Record(name=name, title=about.get("title", name), sources=sources)
        section.columns, section.benchmark = about["columns"], about["benchmark"]
        section.rows = rows_of(section, about.get("paper") or {})
        sections += [section] if section.rows else []
    return sections


def source_of(path: Path, content: Mapping[str, Any], where: str) -> Record:
    """Return a measurement; seeds are e.g. `3`, or `1 to 3` if rows differ."""
    cells = (cell for row in all_rows(content).values() for cell in row.values())
    counts = sorted({cell["seeds"] for cell in cells if cell["seeds"]}) or [0]
    meta = content.get("meta", {})
    command = str(meta.get("command", "unknown"))
    seconds = meta.get("cpu_seconds") or meta.get("seconds")
    changed = ", with local changes" if meta.get("changed") else ""
    provenance = {
        "file": os.path.relpath(path),
        "command": command,
        "commit": str(meta.get("commit") or "unknown")[:10] + changed,
        "seeds": " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))),
        "machine": str(meta.get("machine", "unknown")),
        "time": "unknown" if seconds is None else f"{seconds:,.0f} s",
    }
    # real poses on generated bodies are generated data, too
    mark = "mini" if path.stem.endswith("_mini") or "paths=mini" in command else "real"
    about = {"content": content, "provenance": provenance, "figures": {}}
    return Record(name=path.stem + where, mark=mark, path=path, **about)


def rows_of(section: Record, paper: Mapping[str, Any]) -> list[Record]:
    """Return every method of the paper and of ours; the paper's numbers first, ours below."""
    lines = []
    ours = (method for source in section.sources for method in all_rows(source.content))
    for method in dict.fromkeys([*paper, *ours]):
        if method in paper:
            numbers = zip(section.columns, paper[method], strict=True)
            cited = {name: cell([value]) for name, value in numbers}
            lines.append(
                Record(method=method, mark="cited", origin="paper", cells=cited, against={})
            )
        for source in section.sources:
            cells = all_rows(source.content).get(method, {})
            if any(one["mean"] is not None or one.get("diverged") for one in cells.values()):
                row = Record(method=method, mark=source.mark, origin=source.name, cells=cells)
                row.against = source.content.get("against") or {}
                lines.append(row)
    return lines


def render(template: str, sections: Sequence[Any], meta: Mapping[str, Any], **more: Any) -> str:
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
    functions = (heads, is_ahead, os.path.relpath, text)
    environment.globals |= {function.__name__: function for function in functions}
    values = {"sections": sections, "meta": meta, "MARKS": MARKS, **more}
    return environment.get_template(template).render(values)


def write(outputs: Path, own: bool = True) -> list[Path]:
    """Write report.html and report.md to `outputs` and return their paths."""
    sections, about = gather(RESULTS, outputs if own else None), records.meta()
    paths = [outputs / "report.html", outputs / "report.md"]
    for path in paths:
        content = render(f"page{path.suffix}", sections, about, folder=outputs)
        with atomic_write(path) as file:
            file.write(content.encode())
    return paths
