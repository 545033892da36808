"""Every table and figure with one command: see configs/reproduce/default.yaml.

A table is a part of the work; its benchmark says what data it needs and how long its runs take.
"""

import functools
import os
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from engine import CONFIGS, RESULTS
from engine.benchmarks import mini
from engine.cli import targets
from engine.processes.parts import Part, Plan, Reach, clock, displayed, work_through
from engine.runs import records
from engine.runs.run import composed
from engine.tables import make, report
from engine.tables import table as tables
from engine.tables.compare import expanded
from engine.tables.report.gather import table_configs

PRESETS = {"mini": "laptop", "real": "paper"}
RESTORE = "It is part of the repository: git checkout results restores it."


def parts(cfg: DictConfig) -> tuple[list[Part], list[str]]:
    """What is to be done, and a line for everything that is skipped."""
    if cfg.data not in PRESETS:
        raise SystemExit(f"data: expected {' or '.join(PRESETS)}, got {cfg.data}.")
    made, skipped, drawn = [], [], set()
    seen: set[str] = set()  # what earlier tables have made already
    overrides = for_runs(cfg)
    for name in chosen(cfg.table):
        seeds = cfg.mini_seeds.get(name, cfg.seeds) if cfg.data == "mini" else cfg.seeds
        own = [f"table={name}", f"seeds={seeds}", f"jobs={jobs(cfg)}"]
        table = composed("table", own + make.passed_on(overrides))
        benchmark = table.benchmark
        if program := benchmark.get("program"):  # trained by a program of its own
            settings = list(cfg.get(benchmark.name) or [])
            work = functools.partial(targets.find(program), settings)
            made.append(Part(name, benchmark.seconds.all, work))
            continue
        folder = table.paths.get(benchmark.dataset)  # where its files are, if it has any
        if cfg.data == "mini" and folder is not None and not benchmark.get("mini"):
            skipped.append(
                f"{name}: skipped, there are no generated data of it; with its own: data=real "
                f"paths.{benchmark.dataset}=<their folder>."
            )
            continue
        if cfg.data == "real" and folder is not None and not has_files(Path(folder)):
            dataset = benchmark.dataset
            skipped.append(
                f"{name}: skipped, no data in {folder}; give paths.{dataset}=<its folder>."
            )
            continue
        drawn |= {benchmark.get("mini")} - {None}
        made.append(table_part(cfg, table, overrides, seen))
    if cfg.data == "mini" and drawn:
        seconds = cfg.seconds.prepare * len(drawn) / len(mini.GENERATORS)
        made.insert(0, Part("mini datasets", seconds, lambda _: prepare(cfg, drawn)))
    return made, skipped


def has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def chosen(wanted: Any) -> list[str]:
    """The names of the tables: by default those of the paper, the synthetic one first."""
    known = table_configs()
    if wanted == "all":
        return [name for name, table in known.items() if table.get("paper")]
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    if unknown := [name for name in names if name not in known]:
        known_names = ", ".join(("all", *known))
        raise SystemExit(f"table: {', '.join(unknown)} unknown; choose out of {known_names}.")
    return names


def for_runs(cfg: DictConfig) -> list[str]:
    """What each run is told."""
    paths = {key: value for key, value in cfg.paths.items() if value is not None}
    known = known_paths()
    if unknown := [str(key) for key in paths if key not in known]:
        raise SystemExit(
            f"paths: {', '.join(unknown)} unknown; choose out of {', '.join(sorted(known))}."
        )
    return [
        f"paths={'mini' if cfg.data == 'mini' else 'default'}",
        f"preset={cfg.preset or PRESETS[cfg.data]}",
        "log.progress=false",
        *(f"++paths.{key}={value}" for key, value in paths.items()),
        *cfg.overrides,
    ]


def known_paths() -> set[str]:
    """The names that the paths, the datasets and the benchmarks declare."""
    own: Any = OmegaConf.load(CONFIGS / "paths" / "default.yaml")
    files = [
        path for group in ("dataset", "benchmark") for path in (CONFIGS / group).glob("*.yaml")
    ]
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


def table_part(cfg: DictConfig, table: DictConfig, overrides: list[str], seen: set[str]) -> Part:
    """A table of the visual benchmarks: its runs are steps of different length."""
    seconds = OmegaConf.merge(cfg.seconds, table.benchmark.get("seconds") or {})
    costs = run_costs(seconds, table, overrides, seen)  # pyright: ignore[reportArgumentType]

    def work(reach: Reach) -> Path:
        done = 0

        def say(text: str) -> None:
            nonlocal done
            print(text)
            if not text.endswith("running"):
                done += 1
                reach(sum(costs[:done]) / sum(costs), text.endswith("found"))

        made = make.make(table, overrides, say)
        return next(path for path in made if path.suffix == ".json")

    return Part(table.table.name, sum(costs), work)


def run_costs(
    seconds: DictConfig, table: DictConfig, overrides: list[str], seen: set[str]
) -> list[float]:
    """Expected seconds of each run of a table; the first on a backbone makes stage 1, and the first
    of a benchmark its features, unless that was `seen`.
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
    """Print a table, with the committed numbers beside."""
    published = RESULTS / path.name
    reference = records.read(published, RESTORE) if published.is_file() else None
    title = table_configs()[name]["title"]
    if path.stem.endswith("_mini"):
        title += ", mini data: not to be compared with the paper's numbers"
    tables.show(records.read(path, f"Remove {path} and start again."), title, reference)


def reproduce(cfg: DictConfig) -> None:
    """Work through all parts, show their tables and write the report."""
    GlobalHydra.instance().clear()  # the parts compose from all of configs/
    console = Console(stderr=True)
    outputs = Path(cfg.paths.outputs)

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    made, skipped = parts(cfg)
    for line in skipped:
        say(line)
    if not made:
        raise SystemExit("nothing could be done: there is no data for any of the tables.")
    plan = Plan({part.name: part.seconds for part in made})
    about = f", about {clock(plan.left())} on two cores" if cfg.data == "mini" else ""
    say(f"{len(made)} parts{about}; what they print is in {outputs}/reproduce.log")
    try:
        with displayed(plan, "reproduce", console):
            done = work_through(made, plan, outputs / "reproduce.log", say)
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on from here.") from None
    for name, path in done.items():
        if path is not None:
            show(name, path)
    for line in skipped:
        print(line)
    print(f"report: {report.write(outputs)[0].resolve()}")
    if failed := [part.name for part in made if part.name not in done]:
        raise SystemExit(f"failed: {', '.join(failed)}; see {outputs}/reproduce.log.")
