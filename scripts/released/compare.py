"""Run all comparisons of scripts/released/ and judge each quantity by quantities.yaml.

A comparison is a generator function (root, work) of (quantity, ours, theirs). A verdict is

    equal        the largest difference is within what rounding explains
    deviation    it is larger, and quantities.yaml names a deviation and a bound that it is within
    DIFFERENT    neither
    FAILED       the comparison raised an error
"""

import importlib
import json
import tempfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasets.io.files import atomic_write
from scripts.released.clones import Missing, old_environment
from scripts.released.inputs import RULES

COLUMNS = ("quantity", "largest difference", "rounding explains", "verdict")


def compare(
    repositories: Mapping[str, Any],
    clones: Mapping[str, str | Path | None],
    only: str | None = None,
    nyud2: str | None = None,
) -> dict[str, Any]:
    """Return {lines, deviations, skipped}: a line for each quantity, the reasons of those that
    deviate, and a sentence for everything that was skipped.

    repositories: {key: {url, checks: {module of scripts/released/: [function]}}}.
    clones: {key: folder or None}.
    nyud2: folder of NYUD2-DIR, which a check finds as `nyud2` in its work folder.
    """
    lines, skipped = [], []
    for key, repository in repositories.items():
        name, clone = repository["url"], clones[key]
        if clone is None:
            skipped.append(f"{name}: no clone given")
            continue
        for part, names in repository["checks"].items():
            module = importlib.import_module(f"scripts.released.{part}")
            for check in names:
                title = f"{part}.{check}"
                if only is not None and only not in title:
                    continue
                torch.manual_seed(0)  # a check alone has the numbers that it has among all
                try:
                    with tempfile.TemporaryDirectory() as work, old_environment():
                        if nyud2 is not None:
                            (Path(work) / "nyud2").symlink_to(Path(nyud2).resolve())
                        quantities = getattr(module, check)(Path(clone), Path(work))
                        lines.extend({"repository": name, **line(part, *q)} for q in quantities)
                except Missing as error:
                    skipped.append(f"{name}, {title}: {error}")
                except Exception as error:
                    verdict = f"FAILED: {type(error).__name__}: {error}".splitlines()[0]
                    cells = [title, "-", "-", verdict]
                    lines.append({"repository": name, "verdict": verdict, "cells": cells})
    used = [line["deviation"] for line in lines if line["verdict"].startswith("deviation")]
    reasons = {name: RULES["deviations"][name] for name in used}
    return {"lines": lines, "deviations": reasons, "skipped": skipped}


def line(part: str, quantity: str, ours: Any, theirs: Any) -> dict[str, Any]:
    """Compare one quantity and judge the difference."""
    matching = (
        rule
        for pattern, rule in RULES["tolerances"].get(part, {}).items()
        if fnmatchcase(quantity, pattern)
    )
    rule = {"tolerance": 1e-5, "unit": "relative", "deviation": None, **next(matching, {})}
    size = difference(ours, theirs, rule["unit"] == "relative")
    if size <= rule["tolerance"]:
        verdict = "equal"
    elif rule["deviation"] is None:
        verdict = "DIFFERENT"
    elif size > rule["bound"]:
        verdict = f"DIFFERENT: {rule['deviation']} explains at most {rule['bound']:.3g}"
    else:
        verdict = f"deviation: {rule['deviation']}"
    unit = "" if rule["unit"] == "relative" else f" {rule['unit']}"
    shown = [f"{x:.2g}{unit if x else ''}" for x in (size, rule["tolerance"])]
    cells = [quantity, *shown, verdict]
    known = None if size == np.inf else size  # JSON has no infinity
    return {"quantity": quantity, "difference": known, **rule, "verdict": verdict, "cells": cells}


def difference(ours: Any, theirs: Any, relative: bool) -> float:
    """Return max |ours - theirs|, over max |theirs| if relative; infinite where shapes differ.

    Lists and mappings: the largest over their entries, each by its own scale. Text: the number of
    different entries.
    """
    if isinstance(theirs, Mapping):
        keys = sorted(theirs)
        ours, theirs = [ours[key] for key in keys], [theirs[key] for key in keys]
    if isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return np.inf
        return max(difference(a, b, relative) for a, b in zip(ours, theirs, strict=True))
    a, b = (x.detach().numpy() if isinstance(x, torch.Tensor) else x for x in (ours, theirs))
    a, b = np.ravel(a), np.ravel(b)
    if a.shape != b.shape:
        return np.inf
    if a.dtype.kind in "OSU":
        return float((a != b).sum())
    a, b = a.astype(np.float64), b.astype(np.float64)
    both = np.isnan(a) & np.isnan(b)
    if not np.isfinite(np.where(both, 0, a - b)).all():
        return np.inf
    size = np.abs(a - b)[~both].max(initial=0)
    return float(size / np.abs(b)[~both].max()) if relative and size > 0 else float(size)


def markdown(report: Mapping[str, Any]) -> str:
    """Return docs/fidelity.md, from the content of results/fidelity.json alone."""
    meta, lines = report["meta"], report["lines"]
    kinds = [line["verdict"].split(":")[0] for line in lines]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    text = [
        "# The released code, number by number",
        "",
        "The released code, run next to ours on the same inputs. Made by "
        "`scripts/compare_released.py`; [the protocol](protocol.md) describes how to run it.",
        "",
        f"{len(lines)} quantities: {counts}.",
    ]
    for name in dict.fromkeys(line["repository"] for line in lines):
        commit = meta["clones"].get(name)
        text += ["", f"## {name}" + (f" at {commit[:10]}" if commit else ""), ""]
        text += [f"| {' | '.join(COLUMNS)} |", "|---|---|---|---|"]
        rows = [line["cells"] for line in lines if line["repository"] == name]
        text += [f"| {' | '.join(cells)} |".replace("\n", " ") for cells in rows]
    if report["deviations"]:
        text += ["", "## Deviations", ""]
        text += [f"- *{name}*: {reason}" for name, reason in report["deviations"].items()]
    if report["skipped"]:
        text += ["", "## Skipped", "", *(f"- {line}" for line in report["skipped"])]
    versions = ", ".join(f"{name} {version}" for name, version in meta["versions"].items())
    text += ["", f"Commit {meta['commit']}, {meta['machine']}; {versions}."]
    return "\n".join([*text, "", f"`{meta['command']}`", ""])


def publish(report: Mapping[str, Any], root: Path) -> None:
    """Write results/fidelity.json and docs/fidelity.md."""
    with atomic_write(root / "results" / "fidelity.json") as file:
        file.write((json.dumps(report, indent=1) + "\n").encode())
    with atomic_write(root / "docs" / "fidelity.md") as file:
        file.write(markdown(report).encode())
