"""Compare runs: each row is an experiment, each number a mean over seeds, next to the paper's.

    a table's config: columns, rows {row: {experiment, overrides, seeds}}, paper {row: [numbers]}
    a row with `choose` {key, among, settings} uses the value that is best on validation
    a row with a sweep {key, among} becomes one row for each value, named by `label`;
    with `choose` {settings} in the sweep there is also a row with the best value
    a row with `posthoc` {of: row, ...} has no experiment: it balances the predictions of that row

Runs are found by their configs; missing ones are run.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from datasets.io.arrays import read_npz
from engine.cli import settings, targets
from engine.runs.folder import AGAIN, REPLICATES
from engine.runs.run import SHARED, composed, first_stage, result
from engine.runs.run_all import Progress, run_all
from engine.tables.intervals import Seed, compared
from engine.tables.posthoc import add_rows
from engine.tables.table import DIVERGED, cell
from engine.tables.tradeoff import areas

# Overrides of these groups do not change stage 1, or reach it with the config of stage 2.
STAGE2 = (*SHARED, "preset", "loss", "components", "features", "freeze_bn", "warm_start")
STAGE2 += ("choose", "backbone")


def check_names(setting: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Refuse names that are not known."""
    known = list(dict.fromkeys(map(str, known)))
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"{setting}: unknown {', '.join(unknown)}; choose from {', '.join(known)}."
        )


def group_of(override: str) -> str:
    """Return the group that an override changes: trainer for ~trainer.clip."""
    return re.split(r"[.=/@]", override.lstrip("+~"))[0]


def expanded(rows: Mapping[str, Any]) -> dict[str, DictConfig]:
    """Return the rows of a table, a sweep as one row for each of its values. Rows that are expanded
    already stay as they are."""
    found: dict[str, DictConfig] = {}
    done = {"sweep": None, "choose": None}
    for name, row in rows.items():
        sweep, choose = row.get("sweep") or {}, row.get("choose")
        if "choose" in sweep:
            choose = {**sweep["choose"], "key": sweep["key"], "among": sweep["among"]}
        if choose or not sweep:
            changes = {"choose": choose} if choose else row.get("changes") or {}
            found[name] = OmegaConf.create({**row, **done, "changes": changes})
        for value in sweep.get("among", ()):
            label = sweep.get("label", "{row} {value}").format(row=name, value=value)
            own = {"changes": {sweep["key"]: value}, "curve": name, "knob": value}
            found[label] = OmegaConf.create({**row, **done, **own})
    return found


def configs(
    row: Mapping[str, Any], seeds: int, overrides: list[str], stage1_seeds: int = 1
) -> list[DictConfig]:
    """Return the train config of each seed of a row, on each stage-1 run if it builds on one.

    A row can set its number of seeds; a row without an experiment is only cited.
    """
    if row.get("experiment") is None:
        return []
    own = list(row.get("overrides") or [])
    base = composed("train", [f"experiment={row['experiment']}", *overrides, *own])
    for key, value in (row.get("changes") or {}).items():  # all values of a sweep share the rest
        OmegaConf.update(base, key, value, merge=False, force_add=True)
    if base.backbone is not None:  # its stage 1 is also a row, which receives the same overrides
        stage1 = [text for text in overrides if group_of(text) not in STAGE2]
        base.backbone.overrides = [*base.backbone.overrides, *stage1]
    found = []
    for first in range(1 if first_stage(base) is None else stage1_seeds):
        for seed in range(row.get("seeds") or seeds):
            found.append(base.copy())
            found[-1].seed = seed
            if base.backbone is not None:
                found[-1].backbone.seed = first
    return found


def compare(cfg: DictConfig, overrides: list[str], progress: Progress) -> tuple[Any, Any, Any]:
    """Find or run every cell of configs/table.yaml.

    Returns the content of the table (see table.py, intervals.py), {row: results of its runs}, and
    the replicates {row: {column: (R,)}}.
    """
    table = cfg.table
    more = (table.get("extras") or {}) if cfg.extras else {}
    sections = {"rows": expanded(table.rows), "extras": expanded(more)}
    rows = {**sections["rows"], **sections["extras"]}
    wanted = {n: configs(row, cfg.seeds, overrides, cfg.stage1_seeds) for n, row in rows.items()}
    for one in [one for of_row in wanted.values() for one in of_row][:1]:
        columns = [("table.columns", name) for name in table.columns]
        if problems := settings.unknown_metrics(one.metrics["_target_"], one.trust, columns):
            raise ValueError("\n".join(problems))
    run_all(
        {label(n, one): one for n, of_row in wanted.items() for one in of_row}, cfg.jobs, progress
    )
    done = {name: [result(one) or {} for one in of_row] for name, of_row in wanted.items()}
    add_rows(rows, wanted, done, cfg.get("trust"))

    def cells(name: str) -> dict[str, Any]:
        return row_of(table, name, lambda key: [metric(one, f"test/{key}") for one in done[name]])

    content: dict[str, Any] = {key: {n: cells(n) for n in of} for key, of in sections.items()}
    content["seeds"] = {name: [seeds_of(one) for one in of_row] for name, of_row in wanted.items()}
    replicates = {name: mean_replicates(of_row, table.columns) for name, of_row in done.items()}
    foreseen = {n: [o["leverage"] for o in of if "leverage" in o] for n, of in done.items()}
    if foreseen := {name: of_row for name, of_row in foreseen.items() if of_row}:
        content["leverage"] = foreseen  # gains that `diagnose` predicts on validation data
    if (about := table.get("tradeoff")) is not None:
        content["tradeoff"] = targets.plain(about)
        content["curves"] = curves(sections["rows"])
        content["areas"] = areas(content, replicates)
    return {**content, **compared(content, replicates, cfg.benchmark)}, done, replicates


def metric(run: Mapping[str, Any], key: str) -> float | str | None:
    """Return a metric of a finished run, or DIVERGED."""
    return DIVERGED if run.get("divergence") else run["metrics"][key]


def row_of(table: DictConfig, name: str, values: Callable[[str], Sequence]) -> dict[str, Any]:
    """Return {column: cell} of a row, next to the paper's numbers."""
    paper = (table.get("paper") or {}).get(name) or [None] * len(table.columns)
    return {key: cell(values(key), cited) for key, cited in zip(table.columns, paper, strict=True)}


def curves(rows: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return {method: {value of its knob: row}} of the expanded rows."""
    found: dict[str, dict[str, str]] = {}
    for name, row in rows.items():
        if row.get("knob") is not None:
            found.setdefault(row.curve, {})[str(row.knob)] = name
    return found


def label(row: str, cfg: DictConfig) -> str:
    """Name a run by its row and seeds."""
    first = cfg.backbone.seed if cfg.backbone is not None else 0
    return f"{row}, seed {cfg.seed}" + (f" on stage 1 of seed {first}" if first else "")


def seeds_of(cfg: DictConfig) -> Seed:
    """Return the seeds of stage 1 and of stage 2; a run of one stage has its seed twice."""
    return (cfg.seed if cfg.backbone is None else cfg.backbone.seed, cfg.seed)


def mean_replicates(runs: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """Return {column: (R,)}, averaged over runs, for the columns that every run has stored."""
    paths = [Path(one["folder"]) / REPLICATES for one in runs]
    stored = [read_npz(path, advice=AGAIN) if path.is_file() else {} for path in paths]
    common = [name for name in columns if stored and all(name in one for one in stored)]
    return {name: np.mean([one[name] for one in stored], 0) for name in common}
