"""What the report shows: tables of the paper, our measurements of each, and their figures.

    configs/table/<table>.yaml                 what the paper prints (cited); its benchmark
    <results>/<name>.json, <outputs>/...       what was measured (mini data, or real data)
    .../figures/<name>_<kind>.png              figures of the measurement <name>

A measurement says which table it is of. Older ones belong to the table whose name theirs begins
with: nyud2_mini to nyud2, and utkface to imdb_wiki, whose benchmark lists that dataset.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from engine import CONFIGS
from engine.runs import records
from engine.runs.run import composed
from engine.tables.table import cell

LAST = 1000  # where tables stand that do not say where


@dataclass
class Row:
    """A line of a table: whose numbers (`cited`, `mini` or `real`), from which measurement."""

    method: str
    mark: str
    origin: str
    cells: Mapping[str, Any]
    extra: bool = False  # not in the paper


@dataclass
class Source:
    """A measurement: its file, and the meta that says how it was made."""

    name: str
    mark: str
    path: Path
    content: Mapping[str, Any]

    @property
    def seeds(self) -> str:
        """E.g. `3`, or `1 to 3` where rows differ."""
        rows = [*self.content["rows"].values(), *self.content.get("extras", {}).values()]
        counts = {cell["seeds"] for row in rows for cell in row.values() if cell["seeds"]}
        if not counts:
            return "0"
        low, high = min(counts), max(counts)
        return str(low) if low == high else f"{low} to {high}"


@dataclass
class Figure:
    path: Path
    kind: str
    source: Source | None


@dataclass
class Section:
    """One table of the paper with all that we measured for it."""

    name: str
    title: str
    columns: list[str]
    benchmark: Mapping[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


@cache
def table_configs() -> dict[str, dict[str, Any]]:
    """{name: config} of all tables, each with its `benchmark`; first those that the paper has."""
    found: dict[str, dict[str, Any]] = {}
    for path in (CONFIGS / "table").glob("*.yaml"):
        cfg = composed("table", [f"table={path.stem}"])
        plain: Any = OmegaConf.to_container(cfg.table)
        found[path.stem] = {**plain, "benchmark": OmegaConf.to_container(cfg.benchmark)}

    def rank(name: str) -> tuple[bool, int, str]:
        return not found[name].get("paper"), found[name].get("order", LAST), name

    return {name: found[name] for name in sorted(found, key=rank)}


def gather(results: Path, outputs: Path | None = None) -> list[Section]:
    """The sections of the report. `outputs`: where this machine's own tables are, if it has any."""
    configs = table_configs()
    sections = {
        name: Section(name, table["title"], list(table["columns"]), table["benchmark"])
        for name, table in configs.items()
    }
    figures = {path.name: path for path in sorted((results / "figures").glob("*.png"))}
    sources = [source for path in sorted(results.glob("*.json")) for source in read(path, "")]
    if outputs is not None:
        for folder in sorted({path.parent for path in outputs.glob("*/*.json")}):
            for path in sorted(folder.glob("*.json")):
                sources += read(path, " (this machine)")
            for path in sorted((folder / "figures").glob("*.png")):
                figures[path.name] = path  # the newer one
    for source in sources:
        name = source.content.get("meta", {}).get("table")
        name = name if name in sections else owner(source.path.stem, configs)
        if name is None:
            name = source.path.stem
            columns = dict.fromkeys(c for row in source.content["rows"].values() for c in row)
            sections[name] = Section(name, name, list(columns))
        sections[name].sources.append(source)
    for section in sections.values():
        section.rows = rows_of(section, configs.get(section.name, {}))
    for path in figures.values():
        name, source = owner_of_figure(path, sources)
        holds = (section for section in sections.values() if source in section.sources)
        section = next(holds, None) if source else sections.get(owner(name, configs) or name)
        if section is not None:
            section.figures.append(Figure(path, path.stem.removeprefix(name).strip("_"), source))
    return [section for section in sections.values() if section.rows or section.figures]


def read(path: Path, where: str) -> list[Source]:
    """A measurement, if the file is one: a table with rows."""
    content = records.read(path, f"Make that table again, or remove {path}.")
    if not isinstance(content.get("rows"), dict):
        return []
    # real poses on drawn bodies, too, are of generated data
    mini = path.stem.endswith("_mini") or "paths=mini" in content.get("meta", {}).get("command", "")
    return [Source(path.stem + where, "mini" if mini else "real", path, content)]


def owner(stem: str, tables: Mapping[str, Any]) -> str | None:
    """The table that a measurement belongs to; utkface_sigma is one of imdb_wiki_sigma."""
    fits = {
        named: name
        for name, table in tables.items()
        for dataset in table["benchmark"]["datasets"]
        for named in [name.replace(table["benchmark"]["name"], dataset, 1)]
        if stem == named or stem.startswith(f"{named}_")
    }
    return fits[max(fits, key=len)] if fits else None


def owner_of_figure(path: Path, sources: list[Source]) -> tuple[str, Source | None]:
    """The measurement that a figure shows: of those with its prefix the longest, from the same
    place."""
    fits = [source for source in sources if path.stem.startswith(f"{source.path.stem}_")]
    if not fits:
        return path.stem, None
    best = max(fits, key=lambda s: (len(s.path.stem), s.path.parent == path.parent.parent))
    return best.path.stem, best


def rows_of(section: Section, config: Mapping[str, Any]) -> list[Row]:
    """Every method of the paper and of ours; the paper's numbers first, ours below."""
    paper = config.get("paper") or {}
    cited = {
        method: {c: cell([], v) for c, v in zip(section.columns, values, strict=True)}
        for method, values in paper.items()
    }
    measured = [(s, {**s.content["rows"], **s.content.get("extras", {})}) for s in section.sources]
    methods = dict.fromkeys([*cited, *(method for _, rows in measured for method in rows)])
    lines = []
    for method in methods:
        extra = method not in cited
        if not extra:
            lines.append(Row(method, "cited", "paper", cited[method]))
        lines += [
            Row(method, source.mark, source.name, rows[method], extra)
            for source, rows in measured
            if any(
                entry["mean"] is not None or entry.get("diverged")
                for entry in rows.get(method, {}).values()
            )
        ]
    return lines
