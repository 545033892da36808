"""What the comparison with the released code found: on the screen, and as files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from datasets.io.files import atomic_write
from engine.runs import provenance
from scripts.released.clones import commit
from scripts.released.lines import COLUMNS, Line, reasons


def table(found: list[Line]) -> Table:
    shown = Table("repository", *COLUMNS)
    for line in found:
        colour = "" if line.explained else "[red]"
        *cells, verdict = line.cells()
        shown.add_row(line.repository.split("/")[-1], *cells, f"{colour}{verdict}")
    return shown


def markdown(report: Mapping[str, Any]) -> str:
    """docs/fidelity.md, from the content of results/fidelity.json alone."""
    meta, rows = report["meta"], report["lines"]
    kinds = [row["verdict"].split(":")[0] for row in rows]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    text = [
        "# The released code, number by number",
        "",
        "The released code itself, run beside ours on the same inputs. Made by "
        "`scripts/compare_released.py`; [the protocol](protocol.md) says how to run it.",
        "",
        f"{len(rows)} quantities: {counts}.",
    ]
    for name in dict.fromkeys(row["repository"] for row in rows):
        at = meta["clones"].get(name)
        text += ["", f"## {name}" + (f" at {at[:10]}" if at else ""), ""]
        text += [f"| {' | '.join(COLUMNS)} |", "|---|---|---|---|"]
        for row in rows:
            if row["repository"] == name:
                cells = (cell.replace("|", "\\|") for cell in row["cells"])
                text.append(f"| {' | '.join(cells)} |")
    used = dict.fromkeys(row["deviation"] for row in rows if row["verdict"].startswith("deviation"))
    if used:
        text += ["", "## Deviations", ""]
        text += [f"- *{name}*: {report['deviations'][name]}" for name in used]
    if report["skipped"]:
        text += ["", "## Skipped", "", *(f"- {line}" for line in report["skipped"])]
    versions = ", ".join(f"{name} {version}" for name, version in meta["versions"].items())
    text += [
        "",
        f"Commit {meta['commit']}, {meta['machine']}; {versions}.",
        "",
        f"`{meta['command']}`",
        "",
    ]
    return "\n".join(text)


def content(
    found: list[Line], skipped: list[str], repositories: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Of results/fidelity.json."""
    listed = reasons()
    used = [line.deviation for line in found if line.verdict.startswith("deviation")]
    given = {r.url: commit(Path(r.clone)) for r in repositories.values() if r.clone is not None}
    report = {
        "lines": [{**line.plain(), "cells": line.cells()} for line in found],
        "deviations": {name: listed[name] for name in used if name is not None},
        "skipped": skipped,
        "meta": {**provenance.meta(seconds), "clones": given},
    }
    return json.loads(json.dumps(report))  # as it is read again


def publish(report: Mapping[str, Any], root: Path) -> None:
    """Write results/fidelity.json and docs/fidelity.md."""
    for path, text in (
        (root / "results" / "fidelity.json", json.dumps(report, indent=1) + "\n"),
        (root / "docs" / "fidelity.md", markdown(report)),
    ):
        with atomic_write(path) as file:
            file.write(text.encode())
