"""The pages that show a table of results/, each between two marks of its name."""

from collections.abc import Iterable
from pathlib import Path

from datasets.io.files import atomic_write
from engine import RESULTS
from engine.tables.bindings import rewrite


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- table {name} -->\n", f"<!-- end {name} -->"


def has_place(page: Path, name: str) -> bool:
    """Whether a page shows the table of that name."""
    return _marks(name)[0] in page.read_text()


def insert(page: Path, name: str, text: str) -> None:
    """Put text between the marks `<!-- table name -->` and `<!-- end name -->` of a page."""
    start, end = _marks(name)
    content = page.read_text()
    if content.count(start) != 1 or content.count(end) != 1:
        raise ValueError(f"{page}: expected the marks {start.strip()} and {end} once each")
    before, rest = content.split(start)
    with atomic_write(page) as file:
        file.write((before + start + text + end + rest.split(end)[1]).encode())


def beside(results: Path) -> list[Path]:
    """The pages beside `results` that tables are written to."""
    found = results.parent / "README.md", *sorted(results.parent.glob("docs/*.md"))
    return [path for path in found if path.is_file()]


def insert_everywhere(pages: Iterable[Path], name: str, text: str) -> None:
    """Put a table into every page that shows it, and set the numbers in prose to their cells."""
    for page in pages:
        if has_place(page, name):
            insert(page, name, text)
        rewrite(page, RESULTS)
