"""Reproduce every table and figure with one command: see configs/reproduce/default.yaml.

Each table is a stage; its benchmark states which data it needs and how long its runs take.
"""

import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from engine import CONFIGS, RESULTS
from engine.benchmarks import mini
from engine.cli import targets
from engine.runs import records
from engine.runs.run import composed
from engine.runs.run_all import Event, State
from engine.tables import make
from engine.tables import table as tables
from engine.tables.columns import table_configs
from engine.tables.compare import expanded
from engine.tables.report import render
from engine.tables.stages import Reach, Stage, clock, print_line, run_stages

PRESETS = {"mini": "laptop", "real": "paper"}


def stages(cfg: DictConfig) -> tuple[list[Stage], list[str]]:
    """Return what is to be done, and a line for each table that is skipped."""
    if cfg.data not in PRESETS:
        raise ValueError(f"data: expected {' or '.join(PRESETS)}, got {cfg.data}.")
    found, skipped, generated = [], [], set()
    seen: set[str] = set()  # stage-1 runs and features that earlier tables compute
    overrides = for_runs(cfg)
    for name in chosen(cfg.table):
        seeds = cfg.mini_seeds.get(name, cfg.seeds) if cfg.data == "mini" else cfg.seeds
        own = [f"table={name}", f"seeds={seeds}", f"jobs={jobs(cfg)}"]
        table = composed("table", own + make.passed_on(overrides))
        benchmark = table.benchmark
        if program := benchmark.get("program"):
            settings = list(cfg.get(benchmark.name) or [])
            work = functools.partial(targets.find(program, key="table"), settings)
            found.append(Stage(name, benchmark.seconds.all, work))
            continue
        folder = table.paths.get(benchmark.dataset)  # of the dataset's files, if it has any
        option = f"paths.{benchmark.dataset}=<folder>"
        if folder is not None and cfg.data == "mini" and not benchmark.get("mini"):
            skipped.append(f"{name}: skipped, no generated data; use data=real {option}.")
        elif folder is not None and cfg.data == "real" and not has_files(Path(folder)):
            skipped.append(f"{name}: skipped, no data in {folder}; set {option}.")
        else:
            generated |= {benchmark.get("mini")} - {None}
            found.append(table_stage(cfg, table, overrides, seen))
    if cfg.data == "mini" and generated:
        seconds = cfg.seconds.prepare * len(generated) / len(mini.GENERATORS)
        found.insert(0, Stage("mini datasets", seconds, lambda _: prepare(cfg, generated)))
    return found, skipped


def has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def chosen(wanted: Any) -> list[str]:
    """Return the names of the tables; all: those of the paper, the synthetic one first."""
    known = table_configs()
    if wanted == "all":
        return [name for name, table in known.items() if table.get("paper")]
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    _check("table", names, ["all", *known])
    return names


def for_runs(cfg: DictConfig) -> list[str]:
    """Return the overrides that every run receives."""
    paths = {str(key): value for key, value in cfg.paths.items() if value is not None}
    _check("paths", list(paths), sorted(known_paths()))
    return [
        f"paths={'mini' if cfg.data == 'mini' else 'default'}",
        f"preset={cfg.preset or PRESETS[cfg.data]}",
        "log.progress=false",
        *(f"++paths.{key}={value}" for key, value in paths.items()),
        *cfg.overrides,
    ]


def _check(setting: str, names: Sequence[str], known: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"{setting}: unknown {', '.join(unknown)}; choose from {', '.join(known)}."
        )


def known_paths() -> set[str]:
    """Return the names that the paths, the datasets and the benchmarks declare."""
    own: Any = OmegaConf.load(CONFIGS / "paths" / "default.yaml")
    files = [path for group in ("dataset", "benchmark") for path in CONFIGS.glob(f"{group}/*.yaml")]
    nodes: list[Any] = [own, *(OmegaConf.select(OmegaConf.load(path), "paths") for path in files)]
    return {str(name) for node in nodes for name in node or ()}


def jobs(cfg: DictConfig) -> int:
    if cfg.jobs == "auto":
        return len(os.sched_getaffinity(0)) if cfg.data == "mini" else 1
    return cfg.jobs


def prepare(cfg: DictConfig, wanted: set[str]) -> None:
    own = composed("prepare_mini", list(cfg.prepare))
    own.draw = [name for name in own.draw if name in wanted]
    mini.generate(own)


def table_stage(cfg: DictConfig, table: DictConfig, overrides: list[str], seen: set[str]) -> Stage:
    """Return the stage of a table whose runs take different times."""
    seconds = OmegaConf.merge(cfg.seconds, table.benchmark.get("seconds") or {})
    costs = run_costs(seconds, table, overrides, seen)  # pyright: ignore[reportArgumentType]

    def work(reach: Reach) -> Path:
        done = 0

        def progress(event: Event) -> None:
            nonlocal done
            print(event)
            if event.state is not State.STARTED:
                done += 1
                reach(sum(costs[:done]) / sum(costs), found=event.state is State.FOUND)

        written = make.make(table, overrides, progress)
        return next(path for path in written if path.suffix == ".json")

    return Stage(table.table.name, sum(costs), work)


def run_costs(
    seconds: DictConfig, table: DictConfig, overrides: list[str], seen: set[str]
) -> list[float]:
    """Return the expected seconds of each run of a table.

    The first run on a backbone trains stage 1, and the first of a benchmark computes its features,
    unless an earlier table has (`seen`).
    """
    rows, costs = expanded(table.table.rows), []
    if table.table.get("measure") == "cost":
        return [seconds.measured] * len(rows)

    @functools.cache
    def example(experiment: str) -> DictConfig:
        return composed("train", [f"experiment={experiment}", *overrides])

    for row in rows.values():
        if row.get("experiment"):
            run, benchmark = example(row.experiment), table.benchmark.name
            cached = run.features.mode == "cached"
            one = seconds.cached if cached else seconds.trained
            seeds = [one * len(run.choose.among if run.choose else [0])]
            seeds *= row.get("seeds") or table.seeds
            if run.backbone is not None and run.backbone.experiment not in seen:
                seeds[0] += seconds.trained
                seen.add(run.backbone.experiment)
            if cached and benchmark not in seen:
                seeds[0] += seconds.features
                seen.add(benchmark)
            seen.add(row.experiment)
            costs += seeds
    return costs


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
    console = Console(file=sys.stderr)  # this stream, also while stages write to the log
    outputs = Path(cfg.paths.outputs)
    log = outputs / "reproduce.log"
    found, skipped = stages(cfg)
    for line in skipped:
        print_line(console, line)
    if not found:
        raise SystemExit("Nothing to do: there is no data for any of the tables.")
    total = clock(sum(stage.seconds for stage in found))
    about = f", about {total} on two cores" if cfg.data == "mini" else ""
    print_line(console, f"{len(found)} stages{about}; their output is in {log}")
    succeeded = run_stages(found, log, console)
    for name, path in succeeded.items():
        if path is not None:
            show(name, path)
    for line in skipped:
        print(line)
    print(f"report: {render.write(outputs)[0].resolve()}")
    if failed := [stage.name for stage in found if stage.name not in succeeded]:
        raise SystemExit(f"failed: {', '.join(failed)}; see {log}.")
