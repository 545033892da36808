"""Every number with a decimal point in the README, its docs and the report comes from results/,
from what the paper prints (configs/table/), or from the short list below, which says where from.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.runs import provenance
from engine.speed import suites
from engine.tables import table as tables
from engine.tables.report import gather, markdown, table_configs
from engine.tables.summary import summary

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "speed.md"]
# Numbers of the pages' text that no result file holds.
SETTINGS = {
    "0.25": "a covariance scale of the protocol (synthetic/benchmark/problems.py)",
    "0.5625": "a covariance scale of the protocol (synthetic/benchmark/problems.py)",
    "0.75": "a tempering power that is tried (configs/preset/nyud2)",
    "151.65": "MPVPE of bodies on ImageNet's features as they are, published until 26a221c",
    "167.47": "the same in CMU poses, published until 26a221c",
    "2.7": "MB of models/lite_hmr.pt",
    "3.11": "the Python version (pyproject.toml)",
    "6.4": "GB of .venv, as measured with du",
}


def numbers(node: Any) -> Iterator[float]:
    """All numbers in a piece of JSON or YAML."""
    if isinstance(node, dict):
        for value in node.values():
            yield from numbers(value)
    elif isinstance(node, list):
        for value in node:
            yield from numbers(value)
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield float(node)


@pytest.fixture(scope="module")
def known() -> list[float]:
    contents = [json.loads(path.read_text()) for path in (ROOT / "results").glob("*.json")]
    kept = [{k: v for k, v in c.items() if k != "meta"} for c in contents]
    cited = [table.get("paper", {}) for table in table_configs().values()]
    return [*numbers(kept), *numbers(cited)]


def traced(shown: str, known: list[float]) -> bool:
    """Whether some known number is printed like this; a minus may be a dash."""
    digits = len(shown.partition(".")[2])
    return any(f"{abs(value):.{digits}f}" == shown.lstrip("-") for value in known)


def prose(text: str) -> str:
    """A page without its inserted tables, code and equation numbers."""
    text = re.sub(r"<!-- table (\w+) -->.*?<!-- end \1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return re.sub(r"(Eq\.|Sec\.) \d\.\d+(, \d\.\d+)*", "", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_in_a_pages_text(page: Path, known: list[float]):
    found = set(re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", prose(page.read_text())))
    unknown = {n for n in found - set(SETTINGS) if not traced(n, known)}
    assert not unknown, f"not in results/: {sorted(unknown)}"


def test_the_readme_is_two_screens():
    assert PAGES[0].stat().st_size <= 10_000


def test_tables_in_the_pages_are_those_of_the_files():
    marks = [(page, re.findall(r"<!-- table (\w+) -->", page.read_text())) for page in PAGES]
    shown = [(page.read_text(), name) for page, names in marks for name in names]
    assert {"summary", "synthetic", "benchmark"} <= {name for _, name in shown}
    for page, name in shown:
        inserted = page.split(f"<!-- table {name} -->\n")[1].split(f"<!-- end {name} -->")[0]
        if name == "summary":
            assert inserted == summary(), "python scripts/report.py publish=true"
            continue
        content = json.loads((ROOT / "results" / f"{name}.json").read_text())
        if name == "benchmark":
            assert inserted == suites.markdown(suites.rows_with_goals(content))
        else:
            assert inserted == tables.render(content), f"{name}: publish it again"


def test_numbers_in_the_report(known: list[float]):
    page = markdown(gather(ROOT / "results"), provenance.meta(), ROOT / "results")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    cells = [cell for line in lines for cell in line.split("|")[4:]]
    found = {n for cell in cells for n in re.findall(r"\d+\.\d+(?:e-\d+)?", cell)}
    assert len(found) > 100
    tiny = {n for n in found if "e" in n}
    unknown = {n for n in found - tiny if not traced(n, known)}
    assert not unknown, f"neither in results/ nor in configs/table/: {sorted(unknown)}"
