"""Generated blocks of README.md and docs/*.md: each table is between two marks."""

from pathlib import Path

from datasets.io.files import atomic_write
from engine.tables.report.bindings import rewrite


def insert_everywhere(results: Path, name: str, text: str) -> None:
    """Put text between the marks `<!-- table name -->` and `<!-- end name -->` of every page next
    to `results` that has them, and set the numbers in prose to their cells."""
    start, end = f"<!-- table {name} -->\n", f"<!-- end {name} -->"
    found = results.parent / "README.md", *sorted(results.parent.glob("docs/*.md"))
    for page in (path for path in found if path.is_file()):
        content = page.read_text()
        if start in content:
            if content.count(start) != 1 or content.count(end) != 1:
                raise ValueError(f"{page}: expected the marks {start.strip()} and {end} once each")
            before, rest = content.split(start)
            with atomic_write(page) as file:
                file.write((before + start + text + end + rest.split(end)[1]).encode())
        rewrite(page, results)
