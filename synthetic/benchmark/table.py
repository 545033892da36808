"""The paper's synthetic table and figures: see configs/synthetic.yaml."""

import json
import os
import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from engine import RESULTS
from engine.processes.parts import Reach
from engine.runs import provenance
from engine.runs.run import composed
from engine.tables import pages
from engine.tables import table as tables
from engine.tables.intervals import compared
from synthetic.benchmark import figures
from synthetic.benchmark.jobs import Job, run_all
from synthetic.benchmark.methods import EXTRAS, METHODS, defined, trained_together
from synthetic.benchmark.problems import NONLINEAR, TABLE
from synthetic.benchmark.program import Training

DRAWN = ("Vanilla", "Reweight", "GAI (true noise)")  # what the paper's figures compare


def main_jobs(cfg: DictConfig) -> list[Job]:
    """The jobs of the table, and of the nonlinear figure."""
    seeds = tuple(range(cfg.seeds)) if isinstance(cfg.seeds, int) else tuple(cfg.seeds)
    columns = chosen(cfg.columns, [p.name for p in TABLE], "columns")
    every = [*METHODS, *EXTRAS]
    default = every if cfg.extras else list(METHODS)
    methods = chosen(cfg.methods, every, "methods") if cfg.methods != "all" else default
    if not seeds or not columns or not methods:
        raise SystemExit("nothing to do: give at least one seed, one column and one method.")
    jobs = []
    for family in ("normal", "exponential", "mvn"):
        problems = tuple(p for p in TABLE if p.family == family and p.name in columns)
        for method in methods:
            if problems and defined(method, problems[0]):
                training = settings(cfg, "mvn" if family == "mvn" else "linear")
                parts = trained_together(method, problems, len(seeds))
                jobs += [Job(method, p, seeds, training, cfg.folder, cfg.device) for p in parts]
    if cfg.figures and cfg.columns == "all" and set(DRAWN) <= set(methods):
        training = settings(cfg, "nonlinear")
        jobs += [Job(m, NONLINEAR, seeds[:1], training, cfg.folder, cfg.device) for m in DRAWN]
    return jobs


def chosen(wanted: Any, known: list[str], name: str) -> list[str]:
    names = known if wanted == "all" else list(wanted)
    if unknown := [n for n in names if n not in known]:
        raise SystemExit(f"{name}: {', '.join(unknown)} unknown; choose out of {', '.join(known)}.")
    return names


def settings(cfg: DictConfig, family: str) -> Training:
    content: dict[str, Any] = dict(cfg.training[family])
    return Training(**{**content, "epochs": cfg.epochs or content["epochs"]})


def train(cfg: DictConfig, jobs: list[Job]) -> None:
    columns = (
        TextColumn("{task.description:38}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        everything = progress.add_task("synthetic benchmark", total=sum(job.cost for job in jobs))
        bars: dict[Job, Any] = {}

        def report(job: Job, epoch: int | None) -> None:
            if job not in bars:
                bars[job] = progress.add_task(f"  {job.name}", total=job.training.epochs)
            done = job.training.epochs if epoch is None else epoch
            before = progress.tasks[[t.id for t in progress.tasks].index(bars[job])].completed
            progress.update(bars[job], completed=done)
            progress.advance(everything, job.cost * (done - before) / job.training.epochs)
            if epoch is None:
                progress.update(bars[job], visible=False)
                progress.console.print(f"  {job.name}: done")

        run_all(jobs, workers(cfg), cfg.fresh, report)


def workers(cfg: DictConfig) -> int:
    return (os.cpu_count() or 1) if cfg.workers == "auto" else int(cfg.workers)


def table_of(cfg: DictConfig, jobs: list[Job], rows: dict[str, Any]) -> dict[str, Any]:
    """{row: {column: cell}} for the given rows, in their order, with the paper's values beside."""
    found: dict[str, Any] = {row: {} for row in rows}
    for job in jobs:
        if job.method in rows and job.problems[0].family != "nonlinear":
            for problem, values in zip(job.problems, job.result()["mse"], strict=True):
                paper = cfg.table.paper.get(job.method)
                value = paper and paper[list(cfg.table.columns).index(problem.name)]
                found[job.method][problem.name] = tables.cell(values.tolist(), value)
    return {row: cells for row, cells in found.items() if cells}


def details_of(jobs: list[Job]) -> dict[str, Any]:
    """What explains the cells: the sigma that was learnt and the slope it led to (truth: 1 and 1),
    and what least squares would give with all the data there is.
    """
    found: dict[str, Any] = {"sigma": {}, "slope": {}, "least_squares": {}}
    for job in jobs:
        result = job.result()
        for i, problem in enumerate(job.problems):
            if problem.family == "nonlinear":
                continue
            found["least_squares"][problem.name] = problem.least_squares_mse()
            if job.method in ("GAI", "BMC", "BNI"):
                own = {"sigma": result["sigma"][i].tolist()}
                own |= {"slope": result["weight"][i].ravel().tolist()} if problem.dims == 1 else {}
                for name, values in own.items():
                    cells = found[name].setdefault(job.method, {})
                    cells[problem.name] = tables.cell(values)
    return found


def write(cfg: DictConfig, jobs: list[Job], seconds: float) -> dict[str, Any]:
    """The table of the finished jobs, written with its figures."""
    found = {"rows": table_of(cfg, jobs, METHODS), "extras": table_of(cfg, jobs, EXTRAS)}
    own = [job for job in jobs if job.problems[0].family != "nonlinear"]  # a figure's has one seed
    found["seeds"] = {job.method: [(seed, seed) for seed in job.seeds] for job in own}
    table = {
        **found,
        **compared(found, {}, cfg.benchmark),
        "details": details_of(jobs),
        "meta": {
            **provenance.meta(seconds),
            "table": "synthetic",
            "cpu_seconds": round(sum(job.cpu_seconds() for job in jobs)),
            "training": OmegaConf.to_container(cfg.training),
        },
    }
    for folder in folders(cfg):
        tables.write(table, folder, "synthetic")
        if cfg.figures:
            figures.draw_all(jobs, folder / "figures")
    if cfg.publish:
        pages.insert_everywhere(pages.beside(RESULTS), "synthetic", tables.render(table))
    return table


def folders(cfg: DictConfig) -> list[Path]:
    return [Path(cfg.folder), *([RESULTS] if cfg.publish else [])]


def part(settings: list[str], reach: Reach) -> Path:
    """All of it as one part of `reproduce`, which is told how far it is; the table's JSON."""
    start, cfg = time.perf_counter(), composed("synthetic", settings)
    jobs = main_jobs(cfg)
    behind = dict.fromkeys(jobs, 0.0)
    total = sum(job.cost for job in jobs)

    def note(job: Job, epoch: int | None) -> None:
        found = epoch is None and not behind[job]
        behind[job] = job.cost if epoch is None else job.cost * epoch / job.training.epochs
        reach(sum(behind.values()) / total, found)

    run_all(jobs, workers(cfg), cfg.fresh, note)
    write(cfg, jobs, time.perf_counter() - start)
    return Path(cfg.folder) / "synthetic.json"


def reproduce(cfg: DictConfig) -> None:
    """Train, show the table beside the committed one, write it with its figures."""
    start = time.perf_counter()
    published = RESULTS / "synthetic.json"
    reference = json.loads(published.read_text()) if published.is_file() else None
    jobs = main_jobs(cfg)
    train(cfg, jobs)
    seconds = time.perf_counter() - start
    tables.show(write(cfg, jobs, seconds), cfg.table.title, reference)
    print(f"{seconds:.0f} s. Tables and figures: {', '.join(str(f) for f in folders(cfg))}.")
