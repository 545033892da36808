"""A table of runs: each row is an experiment, each number a mean over seeds, beside the paper's.

    a table's config: columns, rows {row: {experiment, overrides, seeds}}, paper {row: [numbers]}
    a row with `choose` {key, among, settings} takes the value that is best on validation
    a row with a sweep {key, among} is one row for each value; `label` says how they are called
    with `choose` {settings} in it the row itself is there, too, with the best value

The runs are found by their configs; those that are missing are run.
"""

import functools
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, ListConfig, OmegaConf

from datasets.io.arrays import read_npz
from engine.cli import targets
from engine.cli.errors import paragraph
from engine.cli.signatures import nearest
from engine.processes.pool import side_by_side
from engine.runs import identity
from engine.runs.folder import AGAIN, DRAWS
from engine.runs.run import composed, first_stage, result, run
from engine.tables.intervals import Seed, compared, mean_draws
from engine.tables.table import DIVERGED, cell
from engine.tables.tradeoff import areas

Say = Callable[[str], None]


def expanded(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a table, a sweep as one row for each of its values."""
    found: dict[str, Any] = {}
    for name, row in rows.items():
        sweep = row.get("sweep")
        if sweep is None:
            found[name] = _choosing(row, choose) if (choose := row.get("choose")) else row
            continue
        if (more := sweep.get("choose")) is not None:
            chosen = {"key": sweep.key, "among": list(sweep.among), **more}
            found[name] = _choosing({**row, "curve": name, "sweep": None}, chosen)
        for value in sweep.among:
            label = sweep.get("label", "{row} {value}").format(row=name, value=value)
            found[label] = OmegaConf.create(
                {**row, "changes": {sweep.key: value}, "curve": name, "knob": value, "sweep": None}
            )
    return found


def _choosing(row: Mapping[str, Any], choose: Mapping[str, Any]) -> DictConfig:
    own = [*(row.get("overrides") or []), f"choose={_in_hydra(choose)}"]
    return OmegaConf.create({**row, "overrides": own, "choose": None})


def _in_hydra(node: Any) -> str:
    """A value as Hydra's command line takes it: no quotes, no spaces."""
    if isinstance(node, Mapping):
        return "{" + ",".join(f"{k}:{_in_hydra(v)}" for k, v in node.items()) + "}"
    if isinstance(node, list | ListConfig):
        return "[" + ",".join(map(_in_hydra, node)) + "]"
    return str(node)


def configs(
    row: Mapping[str, Any], seeds: int, overrides: list[str], stage1_seeds: int = 1
) -> list[DictConfig]:
    """The train config of each seed of a row, on each stage 1 if it builds on one; a row may have
    seeds of its own, and one without an experiment is only cited."""
    if row.get("experiment") is None:
        return []
    own = list(row.get("overrides") or [])
    names = [f"experiment={row['experiment']}", *overrides, *own]
    one = composed("train", names)
    for key, value in (row.get("changes") or {}).items():  # all values of a sweep share the rest
        OmegaConf.update(one, key, value, force_add=True)
    heads = [_with(one, "seed", seed) for seed in range(row.get("seeds") or seeds)]
    if first_stage(one) is None:
        return heads
    return [_with(cfg, "backbone.seed", s) for s in range(stage1_seeds) for cfg in heads]


def _with(cfg: DictConfig, key: str, value: Any) -> DictConfig:
    other = cfg.copy()
    OmegaConf.update(other, key, value)
    return other


def compare(
    table: DictConfig,
    seeds: int,
    overrides: list[str],
    extras: bool,
    say: Say,
    jobs: int = 1,
    benchmark: Mapping[str, Any] | None = None,
    stage1_seeds: int = 1,
) -> dict:
    """{"rows", "extras", "runs", "run_seconds"}: find or run every cell, all `seeds` of stage 2 on
    each of the `stage1_seeds`. `say` is told what is going on, of every run at last that it was
    "found" or is "done".

    With the `benchmark`, which knows the baselines and which way is better, also "seeds",
    "against" and "areas" (see intervals.py), and "draws" {row: {column: (R,)}}.
    """
    more = (table.get("extras") or {}) if extras else {}
    sections = {"rows": expanded(table.rows), "extras": expanded(more)}
    wanted = {
        name: configs(row, seeds, overrides, stage1_seeds)
        for rows in sections.values()
        for name, row in rows.items()
    }
    check_columns(table.columns, [cfg for cfgs in wanted.values() for cfg in cfgs])
    run_all({label(n, c): c for n, cfgs in wanted.items() for c in cfgs}, jobs, say)
    done = {name: [result(cfg) or {} for cfg in cfgs] for name, cfgs in wanted.items()}

    def cells(name: str) -> dict[str, Any]:
        paper = (table.get("paper") or {}).get(name) or [None] * len(table.columns)
        return {
            key: cell([number_of(one, key) for one in done[name]], published)
            for key, published in zip(table.columns, paper, strict=True)
        }

    content: dict[str, Any] = {
        section: {name: cells(name) for name in rows} for section, rows in sections.items()
    }
    if benchmark is not None:
        content["seeds"] = {name: [seeds_of(c) for c in cfgs] for name, cfgs in wanted.items()}
        content["draws"] = {
            name: mean_draws([read_draws(Path(one["folder"])) for one in of_row], table.columns)
            for name, of_row in done.items()
        }
        if (about := table.get("tradeoff")) is not None:
            content["tradeoff"] = targets.plain(about)
            content["curves"] = curves(sections["rows"])
            content["areas"] = areas(content, content["draws"])
        content |= compared(content, content["draws"], benchmark)
    return {
        **content,
        "runs": {name: [r["folder"] for r in of_row] for name, of_row in done.items()},
        "run_seconds": sum(r["seconds"] for of_row in done.values() for r in of_row),
        "diverged": sorted(name for name, of_row in done.items() if any(map(_diverged, of_row))),
    }


def curves(rows: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """{method: {value of its knob: row}} of the expanded rows."""
    found: dict[str, dict[str, str]] = {}
    for name, row in rows.items():
        if row.get("knob") is not None:
            found.setdefault(row.curve, {})[str(row.knob)] = name
    return found


def label(row: str, cfg: DictConfig) -> str:
    """What a run is called: its row and its seeds, that of stage 1 where there are several."""
    first = cfg.backbone.seed if cfg.backbone is not None else 0
    return f"{row}, seed {cfg.seed}" + (f" on stage 1 of seed {first}" if first else "")


def seeds_of(cfg: DictConfig) -> Seed:
    """(of stage 1, of stage 2); a run of one stage has its seed twice."""
    return (cfg.seed if cfg.backbone is None else cfg.backbone.seed, cfg.seed)


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


def check_columns(columns: Sequence[str], cfgs: Sequence[DictConfig]) -> None:
    """Refuse, before anything is run, a column that the metrics of these runs do not report."""
    for cfg in cfgs[:1]:
        metrics = targets.find(cfg.metrics["_target_"], cfg.trust)
        known = metrics.names_reported() if hasattr(metrics, "names_reported") else columns
        for name in columns:
            if name not in known:
                some, near = ", ".join(known[:8]), nearest(name, known)
                raise ValueError(f"table.columns: {name!r} is not reported; {some}, ... are.{near}")


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
        (together if shared else alone).append((label, cfg, source))
        sources.add(source)

    def tell(label: str, since: float | None) -> None:
        say(f"{label}: {'running' if since is None else f'done in {time.time() - since:.0f} s'}")

    failed: dict[str, Failure] = {}
    broken: dict[str | None, Failure] = {}  # stages 1 that failed: not tried again for every head

    def tell_failed(label: str, why: Failure) -> None:
        say(f"{label}: failed")
        failed[label] = why

    for label, cfg, source in alone:
        if source in broken:
            tell_failed(label, broken[source])
            continue
        tell(label, None)
        start = time.time()
        why = _failure(cfg)
        if why is None:
            tell(label, start)
            continue
        tell_failed(label, why)
        stage1 = first_stage(cfg)
        if stage1 is not None and result(stage1) is None:
            broken[source] = why
    for label, _, source in together:
        if source in broken:
            tell_failed(label, broken[source])
    together = [(label, cfg) for label, cfg, source in together if source not in broken]
    began = dict.fromkeys(range(len(together)), time.time())

    def note(i: int, what: float | Failure | None) -> None:
        label = together[i][0]
        if isinstance(what, Failure):
            tell_failed(label, what)
        elif what is not None:
            began[i] = what
            tell(label, None)
        elif label not in failed:
            tell(label, began[i])

    side_by_side([functools.partial(_run_quietly, cfg) for _, cfg in together], jobs, note)
    if failed:
        raise _of_all(failed, len(cfgs))


class Failure(NamedTuple):
    """Why a run failed, and the traceback."""

    text: str
    where: str


def _failure(cfg: DictConfig) -> Failure | None:
    """Run it; whether that failed. That it diverged is for the table to say."""
    try:
        run(cfg)
    except FloatingPointError:
        return None
    except Exception as error:
        return Failure(paragraph(error), traceback.format_exc())


def _run_quietly(cfg: DictConfig, report: Callable[[float | Failure], None]) -> None:
    """A run beside others, whose words would mix."""
    report(time.time())
    cfg.log.progress = False
    with open(os.devnull, "w") as no, redirect_stdout(no), redirect_stderr(no):
        why = _failure(cfg)
    if why is not None:
        report(why)


def _of_all(failed: Mapping[str, Failure], runs: int) -> RuntimeError:
    """One error for all runs that failed; those with the same reason are in one line."""
    rows: dict[str, list[str]] = {}
    for label, why in failed.items():
        rows.setdefault(why.text, []).append(label)
    lines = [f"{'; '.join(labels)}: {text}" for text, labels in rows.items()]
    kept = f"{len(failed)} of {runs} runs failed, what the others made is kept."
    error = RuntimeError("\n".join([kept, *lines]))
    for why in failed.values():
        error.add_note(why.where)
    return error


def _diverged(done: Mapping[str, Any]) -> bool:
    return bool(done.get("divergence"))
