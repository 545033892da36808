"""What a column of a table is called, its unit, and which way is better: as its benchmark says.

benchmark.columns   {bmae: {title: bMAE, unit: years, better: lower}}
benchmark.parts     {many: Many}; bmae_many is column bmae, part many
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple


class Column(NamedTuple):
    group: str  # e.g. bMAE (years) ↓
    part: str  # e.g. Many; All where the group has parts and this is the whole
    better: Literal["lower", "higher"]
    title: str  # e.g. bMAE


def column(benchmark: Mapping[str, Any], name: str) -> Column:
    """bmae_many -> (bMAE (years) ↓, Many, lower); a name that is not declared stands for itself."""
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


def highlighted(benchmark: Mapping[str, Any], *kinds: str) -> list[str]:
    """The rows that a benchmark highlights as baseline, reweighted, paper or ours."""
    found = benchmark.get("highlight") or {}
    return [row for kind in kinds for row in found.get(kind) or []]
