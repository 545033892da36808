"""Every number in the prose of README.md and docs/results.md is bound to a cell of results/, or is
listed as a constant of the page (see engine/tables/pages.py)."""

import functools
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.benchmarks import tabular_summary
from engine.runs import records
from engine.speed import timing
from engine.tables import table as tables
from engine.tables.pages import NOT_PROSE, numbers, resolve, rewritten, rounded
from engine.tables.report.summary import summary

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", ROOT / "docs" / "results.md"]
CELL = {"mean": 14.25, "std": 0.5}
DIFFERENCE = {"mean": -0.5, "seeds": [-1.25, 0.25], "images": None}


def problems(text: str, value: Callable[[str], float]) -> list[str]:
    """List numbers that differ from their cell or are neither bound nor constant."""
    wrong, found = [], Counter[str]()
    for shown, binding in ((match[0], binding) for match, binding in numbers(text)):
        if binding is None:
            found[shown] += 1
        elif (cell := rounded(value(binding), shown)) != shown:
            wrong.append(f"{shown} should be {cell} ({binding})")
    stated = re.search(r"<!-- constants: (.*?) -->", text, re.DOTALL)
    entries = [entry.partition("*") for entry in (stated[1].split() if stated else [])]
    constants = Counter({number: int(count or 1) for number, _, count in entries})
    if found != constants:
        added, gone = [*(found - constants).elements()], [*(constants - found).elements()]
        listed = " ".join(n if c == 1 else f"{n}*{c}" for n, c in sorted(found.items()))
        wrong.append(f"neither bound nor listed: {added}; listed but not found: {gone}")
        wrong.append(
            f"bind results; if all that is left are settings: <!-- constants: {listed} -->"
        )
    return wrong


@pytest.fixture(params=PAGES, ids=lambda page: page.stem)
def text(request: pytest.FixtureRequest) -> str:
    return request.param.read_text()


@pytest.fixture(scope="module")
def value() -> Callable[[str], float]:
    return functools.cache(functools.partial(resolve, RESULTS))


def test_numbers_in_prose_are_those_of_results(text: str, value: Callable[[str], float]):
    found = problems(text, value)
    assert not found, "\n".join(found)


def test_a_change_of_any_number_is_noticed(text: str, value: Callable[[str], float]):
    """Change the last digit of each number in turn; the numbers are found independently."""
    text = re.sub(r"<!-- table (\w+) -->.*?<!-- end \1 -->", "", text, flags=re.DOTALL)
    hidden = [match.span() for match in NOT_PROSE.finditer(text) if re.search("[A-Za-z]", match[0])]
    unnoticed = []
    for match in re.finditer(r"\d++(?:[.,]\d++)*+(?!DPW)", text):
        name = re.search(r"[^\W\d]\d*$", text[: match.start()])  # as in L1 or bmae_5
        if name or any(start <= match.start() < end for start, end in hidden):
            continue
        last = match.end() - 1
        changed = text[:last] + str(abs(int(text[last]) - 1)) + text[last + 1 :]
        if not problems(changed, value):
            unnoticed.append(text[match.start() - 20 : match.end() + 20])
    assert not unnoticed


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        ("t/BMC/bmae", 14.25),
        ("t/BMC/bmae/std", 0.5),
        ("t/BMC - RRT/bmae", -0.5),
        ("t/BMC - RRT/bmae/seeds/low", -1.25),
        ("t/RRT - BMC/bmae", 0.5),
        ("t/RRT - BMC/bmae/seeds/low", -0.25),
        ("t/BMC % RRT/bmae", -100 * 0.5 / 14.25),
        ("t/BMC/area", 3.0),
        ("t/BMC - RRT/area/seeds/high", 0.25),
        ("t/meta/seconds in minutes", 2.0),
    ],
)
def test_bindings(tmp_path: Path, binding: str, expected: float):
    content = {
        "rows": {"BMC": {"bmae": CELL}, "RRT": {"bmae": CELL}},
        "against": {"BMC": {"RRT": {"bmae": DIFFERENCE}}},
        "areas": {"BMC": {"mean": 3.0, "against": {"RRT": DIFFERENCE}}},
        "meta": {"seconds": 120},
    }
    (tmp_path / "t.json").write_text(json.dumps(content))
    assert resolve(tmp_path, binding) == pytest.approx(expected)


def test_bound_numbers_are_rewritten(tmp_path: Path):
    (tmp_path / "t.json").write_text(json.dumps({"n": {"faces": 38912, "share": 0.124}}))
    page = "{}<!-- t/n/faces --> faces, {}<!-- t/n/share in percent -->, 95%, `7 px`".format
    assert rewritten(page("1,000", "+1.0%"), tmp_path) == page("38,912", "+12.4%")


def test_the_readme_is_two_screens():
    assert len(re.sub("<!--.*?-->", "", PAGES[0].read_text(), flags=re.DOTALL).encode()) <= 10_000


def test_tables_in_the_pages_are_those_of_the_files():
    pages = [*PAGES, ROOT / "docs" / "speed.md", ROOT / "docs" / "tabular.md"]
    derived = tabular_summary.pages(records.read(RESULTS / "tabular.json", ""))
    marks = [(page, re.findall(r"<!-- table (\w+) -->", page.read_text())) for page in pages]
    shown = [(page.read_text(), name) for page, names in marks for name in names]
    assert {"summary", "synthetic", "speed", *derived} <= {name for _, name in shown}
    for page, name in shown:
        inserted = page.split(f"<!-- table {name} -->\n")[1].split(f"<!-- end {name} -->")[0]
        if name == "summary":
            assert inserted == summary(), "python scripts/report.py publish=true"
            continue
        if name in derived:
            assert inserted == derived[name], "python scripts/tabular.py publish=true"
            continue
        content = records.read(RESULTS / f"{name}.json", "")
        if name == "speed":
            assert inserted == timing.report(content)
        else:
            assert inserted == tables.render(content), "python scripts/report.py publish=true"
