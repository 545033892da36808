"""Generated blocks of README.md and docs/*.md: each table stands between two marks."""

from collections.abc import Iterable
from pathlib import Path

from datasets.io.files import atomic_write
from engine import RESULTS
from engine.tables.report.bindings import rewrite


def insert(page: Path, name: str, text: str) -> None:
    """Put text between the marks `<!-- table name -->` and `<!-- end name -->` of a page."""
    start, end = f"<!-- table {name} -->\n", f"<!-- end {name} -->"
    content = page.read_text()
    if content.count(start) != 1 or content.count(end) != 1:
        raise ValueError(f"{page}: expected the marks {start.strip()} and {end} once each")
    before, rest = content.split(start)
    with atomic_write(page) as file:
        file.write((before + start + text + end + rest.split(end)[1]).encode())


def beside(results: Path) -> list[Path]:
    """Return the pages next to `results` that can show tables."""
    found = results.parent / "README.md", *sorted(results.parent.glob("docs/*.md"))
    return [path for path in found if path.is_file()]


def insert_everywhere(pages: Iterable[Path], name: str, text: str) -> None:
    """Put a table into every page that shows it, and set the numbers in prose to their cells."""
    for page in pages:
        if f"<!-- table {name} -->\n" in page.read_text():
            insert(page, name, text)
        rewrite(page, RESULTS)
