"""Generated parts of README.md and docs/*.md: tables between two marks, and numbers in the prose,
each bound to a cell of results/ by a comment directly behind it.

    12.87<!-- wiki/BMC/bmae -->           mean of row BMC in results/wiki.json; also /std, /paper
    -0.52<!-- wiki/BMC - RRT/bmae -->     mean difference; /seeds/low, /seeds/high, /images/low
    -3.9%<!-- wiki/BMC % RRT/bmae -->     the same in percent of the mean of RRT
    24.73<!-- wiki_tradeoff/BMC/area -->  area under a trade-off curve, also with - and %
    2.3<!-- stsb/meta/seconds in minutes -->  any path of keys; UNITS can follow "in"

All other numbers are settings. The page lists them once, with the count of repeated ones:
`<!-- constants: 95%*3 64 4,000*2 -->`. Code, links and inserted tables are not prose.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets.io.files import atomic_write

NUMBER = re.compile(r"(?<![\w.,])[-+]?\d++(?:[.,]\d++)*+%?(?![A-Z])")  # not 3DPW
BINDING = re.compile(r"<!-- (.+?) -->")
NOT_PROSE = re.compile(
    r"<!-- table (\w+) -->.*?<!-- end \1 -->|<!--.*?-->|```.*?```|`[^`\n]*`|\]\([^)]*\)|https?://\S+",
    re.DOTALL,
)
UNITS = {"": 1, "percent": 100, "minutes": 1 / 60, "hours": 1 / 3600, "ms": 1000}
ENDS = {"low": 0, "high": 1}


def prose(text: str) -> str:
    """Return the text with all that is not prose blanked; a number in backticks is prose."""

    def blank(match: re.Match[str]) -> str:
        number = match[0].startswith("`") and not re.search("[A-Za-z]", match[0])
        return match[0] if number else " " * len(match[0])

    return NOT_PROSE.sub(blank, text)


def resolve(results: Path, binding: str) -> float:
    """Return the value of a binding from the JSON files in `results`."""
    path, _, unit = binding.partition(" in ")
    name, *keys = path.split("/")
    content = json.loads((results / f"{name}.json").read_text())
    cells = {**content.get("rows", {}), **content.get("extras", {})}
    pairs = content.get("against", {})
    for row, area in content.get("areas", {}).items():
        cells[row]["area"] = area
        for other, difference in area["against"].items():
            pairs[row].setdefault(other, {})["area"] = difference
    scale: float = UNITS[unit]
    if pair := re.fullmatch(r"(.+) ([-%]) (.+)", keys[0]):
        row, sign, other = pair.groups()
        scale *= 100 / cells[other][keys[1]]["mean"] if sign == "%" else 1
        if other not in pairs.get(row, {}):  # stored the other way round
            row, other, scale = other, row, -scale
            keys = [{"low": "high", "high": "low"}.get(key, key) for key in keys]
        node: Any = pairs[row][other]
    elif keys[0] in cells:
        node = cells[keys[0]]
    else:
        node, keys = content, ["", *keys]
    for key in keys[1:]:
        node = node[ENDS[key] if key in ENDS else int(key)] if isinstance(node, list) else node[key]
    return scale * (node["mean"] if isinstance(node, dict) else node)


def numbers(text: str) -> Iterator[tuple[re.Match[str], str | None]]:
    """Yield each number of the prose, with its binding if it has one."""
    for match in NUMBER.finditer(prose(text)):
        bound = BINDING.match(text, match.end())
        yield match, bound and bound[1]


def rounded(value: float, number: str) -> str:
    """Format a value like `number`: decimals, separator of thousands, plus sign, percent sign."""
    digits = len(number.rstrip("%").partition(".")[2])
    sign = "+" if number.startswith("+") else ""
    comma = "," if "," in number else ""
    return f"{value:{sign}{comma}.{digits}f}" + ("%" if number.endswith("%") else "")


def rewritten(text: str, results: Path) -> str:
    """Return the text of a page with every bound number set to its cell."""
    for match, binding in reversed(list(numbers(text))):
        if binding is not None:
            number = rounded(resolve(results, binding), match[0])
            text = text[: match.start()] + number + text[match.end() :]
    return text


def insert_everywhere(results: Path, name: str, text: str) -> None:
    """Put text between the marks `<!-- table name -->` and `<!-- end name -->` of every page next
    to `results` that has them, and set the numbers in prose to their cells."""
    marks = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    for page in (results.parent / "README.md", *sorted(results.parent.glob("docs/*.md"))):
        before = page.read_text() if page.is_file() else ""
        after = rewritten(marks.sub(lambda found: found[1] + text + found[2], before), results)
        if after != before:
            with atomic_write(page) as file:
                file.write(after.encode())
