"""All checks of scripts/released/, each with a folder of its own to work in."""

import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.released.clones import Missing
from scripts.released.lines import Line, Lines


def compare(
    repositories: Mapping[str, Any],
    only: str | None = None,
    data: Mapping[str, str | None] | None = None,
) -> tuple[list[Line], list[str]]:
    """All lines, and a sentence for everything that was skipped.

    repositories: {key: {url, clone, parts}}; a part is a module of scripts/released/.
    data: {name: folder} of real data, which a check finds under that name in its work folder.
    """
    found, skipped = [], []
    for repository in repositories.values():
        name, clone = repository["url"], repository["clone"]
        if clone is None:
            skipped.append(f"{name}: no clone given")
            continue
        for part in repository["parts"]:
            module = importlib.import_module(f"scripts.released.{part}")
            for check in module.CHECKS:
                title = f"{part}.{check.__name__}"
                if only is not None and only not in title:
                    continue
                lines = Lines(name)
                try:
                    with tempfile.TemporaryDirectory() as work:
                        for key, folder in (data or {}).items():
                            if folder is not None:
                                (Path(work) / key).symlink_to(Path(folder).resolve())
                        check(Path(clone), Path(work), lines)
                except Missing as error:
                    skipped.append(f"{name}, {title}: {error}")
                except Exception as error:
                    note = f"{type(error).__name__}: {error}".splitlines()[0]
                    lines.found.append(Line(name, title, float("inf"), 0.0, note=note))
                found += lines.found
    return found, skipped
