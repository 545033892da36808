"""Names, units and directions of columns, and highlighted rows, as configs/benchmark states them.

benchmark.columns   {bmae: {title: bMAE, unit: years, better: lower}}
benchmark.parts     {many: Many}; bmae_many is column bmae, part many
benchmark.highlight {baseline: [rows], reweighted: [rows], paper: [rows], ours: [rows]}
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from omegaconf import OmegaConf

from engine import CONFIGS
from engine.runs.run import composed

LAST = 1000  # the order of tables that do not state one


class Column(NamedTuple):
    group: str  # e.g. bMAE (years) ↓
    part: str  # e.g. Many; All for the whole of a group
    better: Literal["lower", "higher"]
    title: str  # e.g. bMAE


def column(benchmark: Mapping[str, Any], name: str) -> Column:
    """bmae_many -> (bMAE (years) ↓, Many, lower, bMAE); an undeclared name is its own title."""
    columns, parts = benchmark.get("columns") or {}, benchmark.get("parts") or {}
    fits = [key for key in columns if name == key or name.startswith(f"{key}_")]
    if not fits:
        return Column(name, "", "lower", name)
    key = max(fits, key=len)
    about, part = columns[key], name[len(key) + 1 :]
    if about["better"] not in ("lower", "higher"):
        raise ValueError(f"{key}: better is lower or higher, got {about['better']!r}")
    unit = f" ({about['unit']})" if about.get("unit") else ""
    arrow = "↓" if about["better"] == "lower" else "↑"
    shown = parts.get(part, part) if part else "All"
    return Column(f"{about['title']}{unit} {arrow}", shown, about["better"], about["title"])


def heads(benchmark: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return readable headers, with the unit at the first of a group: bMAE (years) ↓, bMAE Many."""
    found, seen = [], set()
    for about in (column(benchmark, name) for name in names):
        short = about.title if about.part in ("", "All") else f"{about.title} {about.part}"
        first = about.group not in seen
        found.append(short + about.group.removeprefix(about.title) if first else short)
        seen.add(about.group)
    return found


def highlighted(benchmark: Mapping[str, Any], *kinds: str) -> list[str]:
    """Return the rows that a benchmark highlights as baseline, reweighted, paper or ours."""
    found = benchmark.get("highlight") or {}
    return [row for kind in kinds for row in found.get(kind) or []]


@cache
def table_configs() -> dict[str, dict[str, Any]]:
    """{name: config} of all tables, each with its `benchmark`; those of the paper first."""
    found: dict[str, dict[str, Any]] = {}
    for path in (CONFIGS / "table").glob("*.yaml"):
        cfg = composed("table", [f"table={path.stem}"])
        plain: Any = OmegaConf.to_container(cfg.table)
        found[path.stem] = {**plain, "benchmark": OmegaConf.to_container(cfg.benchmark)}

    def rank(name: str) -> tuple[bool, int, str]:
        return not found[name].get("paper"), found[name].get("order", LAST), name

    return {name: found[name] for name in sorted(found, key=rank)}


def table_of(stem: str, content: Mapping[str, Any]) -> str | None:
    """Return the table that results/<stem>.json measures; None if there is no such config."""
    name = content.get("meta", {}).get("table") or stem.removesuffix("_mini")
    return name if name in table_configs() else None


def benchmark_of(stem: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the benchmark of results/<stem>.json; a table without a config may hold its own."""
    name = table_of(stem, content)
    return table_configs()[name]["benchmark"] if name else content.get("benchmark") or {}


def all_rows(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return {row: {column: cell}}, ours after the paper's."""
    return {**content["rows"], **content.get("extras", {})}


def columns_of(content: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for cells in all_rows(content).values() for name in cells))
