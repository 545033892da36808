"""The report in a real browser, from the file system, with the network off."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.tables.report.render import write
from tests.browser.driver import MISSING, Browser

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"{' and '.join(MISSING)} not installed (Debian: chromium-driver)"
)
COLUMN = """
const table = document.querySelector("#imdb_wiki table");
return [...table.tBodies[0].rows].map(row => row.cells[2].dataset.value).filter(v => v).map(Number);
"""
COLOUR = "return getComputedStyle(document.body).backgroundColor"
MOVE = """
const form = document.getElementById("demo-controls");
const input = form.elements["{name}"];
input.value = "{value}";
input.dispatchEvent(new Event("input", {{ bubbles: true }}));
"""
PLOT = """
const line = document.getElementById("demo-line");
return [line.getAttribute("y1"), line.getAttribute("y2"), line.getAttribute("class"),
        document.querySelector("#demo-plot .train").getAttribute("points"),
        document.getElementById("demo-marginal").getAttribute("d")];
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("report"), own=False)[0]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.fixture
def browser(chromium: Browser, page: Path) -> Browser:
    chromium.open(page)
    return chromium


def plot(browser: Browser) -> list[str]:
    """What the plot shows, after the next drawing."""
    browser.run("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
    return browser.run(PLOT)


def test_it_loads_without_errors_or_requests(browser: Browser):
    assert browser.console() == []
    assert browser.run("return document.title") == "Balanced MSE, reproduced"
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert not browser.run("return navigator.onLine")
    assert browser.run(
        "return [...document.images].every(i => i.loading === 'lazy' || i.naturalWidth > 0)"
    )


def test_tables_sort_by_number_and_back(browser: Browser):
    before = browser.run(COLUMN)
    click = "document.querySelectorAll('#imdb_wiki th[data-column]')[2].click()"
    browser.run(click)
    assert browser.run(COLUMN) == sorted(before)
    browser.run(click)
    assert browser.run(COLUMN) == sorted(before, reverse=True)
    browser.run(click)
    assert browser.run(COLUMN) == before
    assert before != sorted(before)


def test_whose_numbers_can_be_chosen(browser: Browser):
    rows = "[...document.querySelectorAll('#imdb_wiki tr.cited')]"
    count = f"return {rows}.filter(row => row.offsetParent).length"
    assert browser.run(count) > 0
    browser.run("document.querySelector('#marks input[name=cited]').click()")
    assert browser.run(count) == 0


def test_the_demo_moves(browser: Browser):
    now = plot(browser)
    changed = {"skew": "1", "noise": "0.5", "method": "BMC", "seed": "3", "family": "exponential"}
    for name, value in changed.items():
        browser.run(MOVE.format(name=name, value=value))
        after = plot(browser)
        assert after[:2] != now[:2], f"{name} does not move the line"
        assert after[4] != now[4], f"{name} does not move the marginal of the predictions"
        if name in ("skew", "family"):
            assert after[3] != now[3], f"{name} does not move the label distribution"
        now = after
    assert browser.console() == []


def test_the_demo_agrees_with_the_closed_form(browser: Browser):
    for name, value in {"count": "0", "skew": "3", "method": "Vanilla"}.items():
        browser.run(MOVE.format(name=name, value=value))
    plot(browser)
    shown = "document.querySelector('#demo-lines .chosen').lastChild.textContent"
    closed = "document.getElementById('demo-closed').textContent"
    assert browser.run(f"return [{shown}, {closed}]") == ["5.333", "5.333"]


def test_dark_and_light(browser: Browser):
    before = browser.run(COLOUR)
    browser.run("document.getElementById('theme').click()")
    assert browser.run(COLOUR) != before


def test_a_phone_scrolls_tables_not_the_page(page: Path, tmp_path: Path):
    browser = Browser(tmp_path, width=390, height=844, dark=True)
    try:
        browser.open(page)
        assert browser.run("return document.documentElement.scrollWidth") <= 390
        assert browser.run(COLOUR) == "rgb(20, 22, 26)"
    finally:
        browser.close()
