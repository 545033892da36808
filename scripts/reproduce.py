"""Reproduce every table and figure of the paper: see configs/reproduce/default.yaml."""

import functools
import json
import os
import time
from pathlib import Path
from typing import Any

from command import command
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig
from rich.console import Console

from engine import RESULTS
from engine.run import composed
from engine.tables import table as tables
from engine.tables.parts import Part, Plan, Reach, clock, displayed, work_through
from engine.tables.report.gather import table_configs
from scripts import prepare_mini, report
from scripts import run_synthetic as synthetic
from scripts import table as table_script
from synthetic.jobs import Job, run_all

PRESETS = {"mini": "laptop", "real": "paper"}


def parts(cfg: DictConfig) -> tuple[list[Part], list[str]]:
    """What is to be done, and a line for everything that is skipped."""
    if cfg.data not in PRESETS:
        raise SystemExit(f"data: expected {' or '.join(PRESETS)}, got {cfg.data}.")
    made, skipped = [], []
    seen: set[str] = set()  # what earlier tables have made already
    for name in chosen(cfg.table):
        if name == "synthetic":
            work = functools.partial(train_synthetic, cfg)
            made.append(Part(name, cfg.seconds.synthetic, work))
            continue
        overrides = for_runs(cfg)
        seeds = cfg.mini_seeds.get(name, cfg.seeds) if cfg.data == "mini" else cfg.seeds
        own = [f"table={name}", f"seeds={seeds}", f"jobs={jobs(cfg)}"]
        own += table_script.passed_on(overrides)
        table = composed("table", own)
        rows = table.table.rows.values()
        benchmark = next(r.experiment for r in rows if r.get("experiment")).split("/")[0]
        place = Path(cfg.paths.get(benchmark) or Path(table.paths.data) / benchmark)
        if cfg.data == "real" and not (place.is_dir() and any(place.iterdir())):
            skipped.append(
                f"{name}: skipped, no data in {place}; give paths.{benchmark}=<its folder>."
            )
            continue
        made.append(table_part(cfg, table, overrides, seen))
    visual = any(part.name != "synthetic" for part in made)
    if cfg.data == "mini" and visual:
        made.insert(0, Part("mini datasets", cfg.seconds.prepare, lambda _: prepare(cfg)))
    return made, skipped


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
    return [
        f"paths={'mini' if cfg.data == 'mini' else 'default'}",
        f"preset={cfg.preset or PRESETS[cfg.data]}",
        "log.progress=false",
        *(f"++paths.{key}={value}" for key, value in paths.items()),
        *cfg.overrides,
    ]


def jobs(cfg: DictConfig) -> int:
    if cfg.jobs == "auto":
        return len(os.sched_getaffinity(0)) if cfg.data == "mini" else 1
    return cfg.jobs


def prepare(cfg: DictConfig) -> None:
    prepare_mini.main(composed("prepare_mini", list(cfg.prepare)))


def train_synthetic(cfg: DictConfig, reach: Reach) -> Path:
    start = time.perf_counter()
    own = composed("synthetic", list(cfg.synthetic))
    jobs = synthetic.main_jobs(own)
    behind = dict.fromkeys(jobs, 0.0)
    total = sum(job.cost for job in jobs)

    def note(job: Job, epoch: int | None) -> None:
        found = epoch is None and not behind[job]
        behind[job] = job.cost if epoch is None else job.cost * epoch / job.training.epochs
        reach(sum(behind.values()) / total, found)

    run_all(jobs, synthetic.workers(own), own.fresh, note)
    synthetic.write(own, jobs, time.perf_counter() - start)
    return Path(own.folder) / "synthetic.json"


def table_part(cfg: DictConfig, table: DictConfig, overrides: list[str], seen: set[str]) -> Part:
    """A table of the visual benchmarks: its runs are steps of different length."""
    costs = run_costs(cfg.seconds, table, overrides, seen)

    def work(reach: Reach) -> Path:
        done = 0

        def say(text: str) -> None:
            nonlocal done
            print(text)
            if not text.endswith("running"):
                done += 1
                reach(sum(costs[:done]) / sum(costs), text.endswith("found"))

        made = table_script.make(table, overrides, say)
        return next(path for path in made if path.suffix == ".json")

    return Part(table.table.name, sum(costs), work)


def run_costs(
    seconds: DictConfig, table: DictConfig, overrides: list[str], seen: set[str]
) -> list[float]:
    """Expected seconds of each run of a table; the first on a backbone makes stage 1, and the first
    of a benchmark its features, unless that was `seen`.
    """
    rows, costs = table.table.rows, []
    if table.table.get("measure") == "cost":
        return [seconds.measured] * len(rows)

    @functools.cache
    def example(experiment: str) -> DictConfig:
        return composed("train", [f"experiment={experiment}", *overrides])

    for row in rows.values():
        if row.get("experiment"):
            run, benchmark = example(row.experiment), row.experiment.split("/")[0]
            cached = run.features.mode == "cached"
            one = seconds.cached[benchmark] if cached else seconds.trained
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
    reference = json.loads(published.read_text()) if published.is_file() else None
    title = table_configs()[name]["title"]
    if path.stem.endswith("_mini"):
        title += ", mini data: not to be compared with the paper's numbers"
    tables.show(json.loads(path.read_text()), title, reference)


@command("reproduce/default")
def main(cfg: DictConfig) -> None:
    GlobalHydra.instance().clear()  # the parts compose from all of configs/
    console = Console(stderr=True)
    outputs = Path(cfg.paths.outputs)
    made, skipped = parts(cfg)
    say = lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)  # noqa: E731
    for line in skipped:
        say(line)
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


if __name__ == "__main__":
    main()
