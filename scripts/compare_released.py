r"""Run the released code beside ours on the same inputs: one line for each quantity.

    python scripts/compare_released.py balanced_mse=<clone> dir=<clone> spin=<clone> \
        mmhuman3d=<clone>

The clones are the user's, of the repositories that configs/compare_released.yaml names. What is
missing (a clone, a package that its code needs) is skipped by name. The exit code is 1 if a line
is DIFFERENT or FAILED.
"""

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from command import command
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from datasets.files import whole
from engine import ROOT, provenance
from scripts.released.clones import Missing, commit
from scripts.released.lines import COLUMNS, Line, Lines, reasons


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


def written(
    found: list[Line], skipped: list[str], cfg: DictConfig, seconds: float
) -> dict[str, Any]:
    """The content of results/fidelity.json."""
    listed = reasons()
    used = [line.deviation for line in found if line.verdict.startswith("deviation")]
    given = {r.url: commit(Path(r.clone)) for r in cfg.repositories.values() if r.clone is not None}
    return {
        "lines": [{**line.plain(), "cells": line.cells()} for line in found],
        "deviations": {name: listed[name] for name in used if name is not None},
        "skipped": skipped,
        "meta": {**provenance.meta(seconds), "clones": given},
    }


@command("compare_released")
def main(cfg: DictConfig) -> None:
    GlobalHydra.instance().clear()  # the parts compose configs of their own
    torch.manual_seed(0)
    start = time.perf_counter()
    found, skipped = compare(cfg.repositories, cfg.only, {"nyud2": cfg.nyud2})
    Console(width=200 if not sys.stdout.isatty() else None).print(table(found))
    for line in skipped:
        print(f"skipped: {line}")
    wrong = [line for line in found if not line.explained]
    print(f"{len(found)} quantities, {len(wrong)} of them not explained")
    if cfg.publish:
        report = written(found, skipped, cfg, time.perf_counter() - start)
        report = json.loads(json.dumps(report))
        for path, text in (
            (ROOT / "results" / "fidelity.json", json.dumps(report, indent=1) + "\n"),
            (ROOT / "docs" / "fidelity.md", markdown(report)),
        ):
            with whole(path) as file:
                file.write(text.encode())
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
