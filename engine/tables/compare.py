"""A table of runs: each row is an experiment, each number a mean over seeds, beside the paper's.

    a table's config: columns, rows {row: {experiment, overrides, seeds}}, paper {row: [numbers]}
    a row with a sweep {key, among} is one row for each value; `label` says how they are called

The runs are found by their configs; those that are missing are run.
"""

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from datasets.arrays import read_npz
from engine import identity, targets
from engine.run import composed, first_stage, result, run
from engine.runs import AGAIN, DRAWS
from engine.tables.columns import column, highlighted
from engine.tables.intervals import against, mean_draws
from engine.tables.pool import side_by_side
from engine.tables.table import DIVERGED, cell

Say = Callable[[str], None]


def expanded(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a table, a sweep as one row for each of its values."""
    found: dict[str, Any] = {}
    for name, row in rows.items():
        sweep = row.get("sweep")
        if sweep is None:
            found[name] = row
            continue
        for value in sweep.among:
            label = sweep.get("label", "{row} {value}").format(row=name, value=value)
            own = [*(row.get("overrides") or []), f"++{sweep.key}={value}"]
            found[label] = OmegaConf.create(
                {**row, "overrides": own, "curve": name, "knob": value, "sweep": None}
            )
    return found


def configs(row: Mapping[str, Any], seeds: int, overrides: list[str]) -> list[DictConfig]:
    """The train config of each seed of a row; a row may have fewer seeds than the table, and one
    without an experiment is only cited."""
    if row.get("experiment") is None:
        return []
    own = list(row.get("overrides") or [])
    names = [f"experiment={row['experiment']}", *overrides, *own]
    return [composed("train", [*names, f"seed={s}"]) for s in range(row.get("seeds") or seeds)]


def compare(
    table: DictConfig,
    seeds: int,
    overrides: list[str],
    extras: bool,
    say: Say,
    jobs: int = 1,
    benchmark: Mapping[str, Any] | None = None,
) -> dict:
    """{"rows", "extras", "runs", "run_seconds"}: find or run every cell. `say` is told what is
    going on, of every run at last that it was "found" or is "done".

    With the `benchmark`, which knows the baselines and which way is better, also "seeds" and
    "against" (see intervals.py), and "draws" {row: {column: (R,)}}.
    """
    more = (table.get("extras") or {}) if extras else {}
    sections = {"rows": expanded(table.rows), "extras": expanded(more)}
    wanted = {
        name: configs(row, seeds, overrides)
        for rows in sections.values()
        for name, row in rows.items()
    }
    run_all({f"{n}, seed {c.seed}": c for n, cfgs in wanted.items() for c in cfgs}, jobs, say)
    done = {name: [result(cfg) or {} for cfg in cfgs] for name, cfgs in wanted.items()}

    def cells(name: str) -> dict[str, Any]:
        paper = (table.get("paper") or {}).get(name) or [None] * len(table.columns)
        return {
            key: cell([number_of(one, key) for one in done[name]], published)
            for key, published in zip(table.columns, paper, strict=True)
        }

    content = {section: {name: cells(name) for name in rows} for section, rows in sections.items()}
    if benchmark is not None:
        content |= differences(wanted, done, table.columns, benchmark)
    return {
        **content,
        "runs": {name: [r["folder"] for r in of_row] for name, of_row in done.items()},
        "run_seconds": sum(r["seconds"] for of_row in done.values() for r in of_row),
        "diverged": sorted(name for name, of_row in done.items() if any(map(_diverged, of_row))),
    }


def differences(
    cfgs: Mapping[str, list[DictConfig]],
    done: Mapping[str, list[dict]],
    columns: Sequence[str],
    benchmark: Mapping[str, Any],
) -> dict[str, Any]:
    """Every row against the benchmark's baselines: {"seeds", "against", "draws"}."""
    seeds = {
        name: [(c.seed if c.backbone is None else c.backbone.seed, c.seed) for c in of_row]
        for name, of_row in cfgs.items()
        if of_row
    }
    drawn = {name: [read_draws(Path(one["folder"])) for one in done[name]] for name in seeds}
    rows = {
        name: {
            key: {
                "values": {
                    seed: math.nan if value is None else value
                    for seed, one in zip(of_row, done[name], strict=True)
                    for value in (one["metrics"].get(f"test/{key}"),)
                },
                "draws": mean_draws(drawn[name], key),
            }
            for key in columns
        }
        for name, of_row in seeds.items()
    }
    baselines = [*highlighted(benchmark, "baseline"), *highlighted(benchmark, "reweighted")]
    better = {name: column(benchmark, name).better for name in columns}
    draws = {
        name: {key: one["draws"] for key, one in cells.items() if one["draws"] is not None}
        for name, cells in rows.items()
    }
    return {"seeds": seeds, "against": against(rows, baselines, better), "draws": draws}


def read_draws(folder: Path) -> dict[str, Any]:
    """The metrics of a run on draws of its test set; none where it has kept none."""
    path = folder / DRAWS
    if not path.is_file():
        return {}
    return read_npz(path, advice=AGAIN)


def number_of(done: Mapping[str, Any], column: str) -> float | str | None:
    """A run's number for a column of the table, or that it diverged."""
    if done.get("divergence"):
        return DIVERGED
    if f"test/{column}" not in done["metrics"]:
        known = ", ".join(k.removeprefix("test/") for k in done["metrics"] if k.startswith("test/"))
        raise ValueError(f"table.columns: {column!r} is not reported; {known} are.")
    return done["metrics"][f"test/{column}"]


def run_all(cfgs: Mapping[str, DictConfig], jobs: int, say: Say) -> None:
    """Run what is missing, {label: config}; on cached features so many `jobs` at a time."""
    alone, together, sources = [], [], set()
    for label, cfg in cfgs.items():
        if result(cfg) is not None and not cfg.rerun:
            say(f"{label}: found")
            continue
        stage1 = first_stage(cfg)
        source = None if stage1 is None else identity.digest(targets.plain(stage1))
        # the first on its features computes them, with all threads
        shared = jobs > 1 and cfg.features.mode == "cached" and source in sources
        (together if shared else alone).append((label, cfg))
        sources.add(source)

    def tell(label: str, since: float | None) -> None:
        say(f"{label}: {'running' if since is None else f'done in {time.time() - since:.0f} s'}")

    for label, cfg in alone:
        tell(label, None)
        start = time.time()
        with contextlib.suppress(FloatingPointError):  # the table says that it diverged
            run(cfg)
        tell(label, start)
    began = dict.fromkeys(range(len(together)), time.time())

    def told(i: int, since: float | None) -> None:
        if since is None:
            tell(together[i][0], began[i])
        else:
            began[i] = since
            tell(together[i][0], None)

    side_by_side([functools.partial(_run_quietly, cfg) for _, cfg in together], jobs, told)


def _run_quietly(cfg: DictConfig, report: Callable[[float], None]) -> None:
    """A run beside others, whose words would mix."""
    report(time.time())
    cfg.log.progress = False
    diverged = contextlib.suppress(FloatingPointError)  # the table says so
    with open(os.devnull, "w") as no, redirect_stdout(no), redirect_stderr(no), diverged:
        run(cfg)


def _diverged(done: Mapping[str, Any]) -> bool:
    return bool(done.get("divergence"))
