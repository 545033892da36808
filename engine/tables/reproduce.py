"""Reproduce every table and figure with one command: see configs/reproduce/default.yaml."""

import contextlib
import functools
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from datasets.io.files import refuse_links
from engine import CONFIGS, RESULTS
from engine.cli import targets
from engine.runs import records
from engine.runs.run import composed
from engine.runs.run_all import Event
from engine.tables import make
from engine.tables import table as tables
from engine.tables.columns import table_configs
from engine.tables.compare import check_names, expanded
from engine.tables.report import render

PRESETS = {"mini": "laptop", "real": "paper"}
MINUTES = 5  # expected, unless the table states its own
Reach = Callable[[float], None]  # receives the share of a stage that is done


class Stage(NamedTuple):
    """Some minutes of work that reports its progress and returns its table's JSON, if any."""

    name: str
    minutes: float  # expected
    work: Callable[[Reach], Path | None]


def stages(cfg: DictConfig) -> tuple[list[Stage], list[str]]:
    """Return what is to be done, and a line for each table that is skipped."""
    found, skipped = [], []
    overrides, jobs, is_mini = for_runs(cfg), cfg.jobs, cfg.data == "mini"
    if jobs == "auto":
        jobs = len(os.sched_getaffinity(0)) if is_mini else 1
    for name in chosen(cfg.table):
        seeds = cfg.mini_seeds.get(name, cfg.seeds) if is_mini else cfg.seeds
        own = [f"table={name}", f"seeds={seeds}", f"jobs={jobs}"]
        table = composed("table", own + make.passed_on(overrides))
        benchmark = table.benchmark
        work = functools.partial(run_table, table, overrides)
        folder = table.paths.get(benchmark.dataset)  # of the dataset's files, if it has any
        option = f"paths.{benchmark.dataset}=<folder>"
        if program := benchmark.get("program"):
            settings = list(cfg.get(benchmark.name) or [])
            work = functools.partial(targets.find(program, key="table"), settings)
        elif folder is not None and is_mini and not benchmark.get("mini"):
            skipped.append(f"{name}: skipped, no generated data; use data=real {option}.")
            continue
        elif folder is not None and not is_mini and not any(Path(folder).glob("*")):
            skipped.append(f"{name}: skipped, no data in {folder}; set {option}.")
            continue
        found.append(Stage(name, table.table.get("minutes", MINUTES), work))
    return found, skipped


def chosen(wanted: Any) -> list[str]:
    """Return the names of the tables; all: those of the paper, the synthetic one first."""
    known = table_configs()
    if wanted == "all":
        return [name for name, table in known.items() if table.get("paper")]
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    check_names("table", names, ["all", *known])
    return names


def for_runs(cfg: DictConfig) -> list[str]:
    """Return the overrides that every run receives."""
    paths = {str(key): str(value) for key, value in cfg.paths.items() if value is not None}
    # the names that the paths, the datasets and the benchmarks declare
    files = [*CONFIGS.glob("dataset/*.yaml"), *CONFIGS.glob("benchmark/*.yaml")]
    nodes: list[Any] = [OmegaConf.select(OmegaConf.load(file), "paths") or {} for file in files]
    nodes.append(OmegaConf.load(CONFIGS / "paths" / "default.yaml"))
    check_names("paths", list(paths), sorted({str(name) for node in nodes for name in node}))
    quoted = {key: _quoted(path) for key, path in paths.items()}
    if cfg.data == "mini":  # for the data that the first run on it generates
        quoted["generate"] = f"[{','.join(map(_quoted, cfg.prepare))}]"
    return [
        f"paths={'mini' if cfg.data == 'mini' else 'default'}",
        f"preset={cfg.preset or PRESETS[cfg.data]}",
        "log.progress=false",
        *(f"++paths.{key}={path}" for key, path in quoted.items()),
        *cfg.overrides,
    ]


def _quoted(text: str) -> str:
    return QuotedString(text, Quote.single).with_quotes()


def run_table(table: DictConfig, overrides: list[str], reach: Reach) -> Path:
    """Make a table and return its JSON."""
    rows = [row for row in expanded(table.table.rows).values() if row.get("experiment")]
    runs, done = sum(row.get("seeds") or table.seeds for row in rows), 0

    def progress(event: Event) -> None:
        nonlocal done
        print(event)
        done += event.state != "running"
        reach(done / runs)

    written = make.make(table, overrides, progress)
    return next(path for path in written if path.suffix == ".json")


def run_stages(found: Sequence[Stage], log: Path) -> dict[str, Path | None]:
    """Return {stage: the JSON of its table, or None} of the stages that succeeded.

    Their output goes to `log`. A stage that fails does not stop the others.
    """
    succeeded: dict[str, Path | None] = {}
    refuse_links(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    look: Any = {"disable": None, "bar_format": "{l_bar}{bar} {elapsed}, {remaining} left"}
    bar = tqdm(total=sum(stage.minutes for stage in found), **look)
    with bar, log.open("a", buffering=1) as file:
        for stage in found:
            start, before = time.monotonic(), bar.n
            bar.set_description(f"reproduce: {stage.name}")

            def reach(share: float, stage: Stage = stage, before: float = before) -> None:
                bar.update(before + min(share, 1) * stage.minutes - bar.n)

            try:
                with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                    print(f"=== {stage.name}, {time.strftime('%Y-%m-%d %H:%M:%S')}")
                    succeeded[stage.name] = stage.work(reach)
                line = f"{stage.name}: done in {time.monotonic() - start:.0f} s"
            except Exception as error:
                traceback.print_exc(file=file)
                line = f"{stage.name}: FAILED, {type(error).__name__}: {error} (see {log})"
            reach(1.0)
            bar.write(line, file=sys.stderr)
    return succeeded


def show(name: str, path: Path) -> None:
    """Print a table next to the committed numbers."""
    published = RESULTS / path.name
    restore = "It is part of the repository: git checkout results restores it."
    reference = records.read(published, restore) if published.is_file() else None
    title = table_configs()[name]["title"]
    if path.stem.endswith("_mini"):
        title += ", mini data: do not compare with the paper's numbers"
    tables.show(records.read(path, f"Remove {path} and start again."), title, reference)


def reproduce(cfg: DictConfig) -> None:
    """Run all stages, show their tables and write the report."""
    GlobalHydra.instance().clear()  # the stages compose from all of configs/
    outputs = Path(cfg.paths.outputs)
    log = outputs / "reproduce.log"
    found, skipped = stages(cfg)
    for line in skipped:
        print(line, file=sys.stderr)
    if not found:
        raise SystemExit("Nothing to do: there is no data for any of the tables.")
    minutes = sum(stage.minutes for stage in found)
    about = f", about {minutes} minutes on two cores" if cfg.data == "mini" else ""
    print(f"{len(found)} stages{about}; their output is in {log}", file=sys.stderr)
    succeeded = run_stages(found, log)
    for name, path in succeeded.items():
        if path is not None:
            show(name, path)
    print(f"report: {render.write(outputs)[0].resolve()}")
    if failed := [stage.name for stage in found if stage.name not in succeeded]:
        raise SystemExit(f"failed: {', '.join(failed)}; see {log}.")
