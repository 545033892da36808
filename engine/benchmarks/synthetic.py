"""Train the synthetic benchmark and write its table and figures: see configs/synthetic.yaml."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from datasets.io.files import refuse_links, writable
from engine import RESULTS
from engine.processes.pool import side_by_side
from engine.runs import records
from engine.runs.run import composed
from engine.tables import pages, plots
from engine.tables import table as tables
from engine.tables.compare import check_names
from engine.tables.intervals import compared
from synthetic.benchmark import figures
from synthetic.benchmark.jobs import EXTRAS, METHODS, POSTHOC, Job, defined, trained_together
from synthetic.benchmark.problems import NONLINEAR, TABLE
from synthetic.benchmark.program import Training


def make_jobs(cfg: DictConfig) -> list[Job]:
    """Return the jobs of the table and of the nonlinear figure."""
    seeds = tuple(range(cfg.seeds)) if isinstance(cfg.seeds, int) else tuple(cfg.seeds)
    known = {"columns": [p.name for p in TABLE], "methods": [*METHODS, *EXTRAS]}
    for setting, names in known.items():
        check_names(setting, [] if cfg[setting] == "all" else cfg[setting], names)
    columns = known["columns"] if cfg.columns == "all" else cfg.columns
    methods = [*METHODS, *(EXTRAS if cfg.extras else [])] if cfg.methods == "all" else cfg.methods
    if not seeds or not columns or not methods:
        raise ValueError("Nothing to do: give at least one seed, one column and one method.")
    jobs = []
    for family in ("normal", "exponential", "mvn"):
        problems = tuple(p for p in TABLE if p.family == family and p.name in columns)
        training = _training(cfg, "mvn" if family == "mvn" else "linear")
        for method in methods:
            if problems and defined(method, problems[0]):
                groups = trained_together(method, problems, len(seeds))
                jobs += [Job(method, g, seeds, training, cfg.folder, cfg.device) for g in groups]
    if cfg.figures and cfg.columns == "all" and set(figures.NAMES) <= set(methods):
        training, first = _training(cfg, "nonlinear"), seeds[:1]
        for method in figures.NAMES:
            jobs.append(Job(method, NONLINEAR, first, training, cfg.folder, cfg.device))
    return jobs


def _training(cfg: DictConfig, family: str) -> Training:
    content: dict[str, Any] = dict(cfg.training[family])
    return Training(**{**content, "epochs": cfg.epochs or content["epochs"]})


def run_jobs(
    jobs: Iterable[Job], workers: int, fresh: bool, report: Callable[[Job, int | None], None]
) -> None:
    """Run the unfinished jobs; calls `report(job, epoch)`, with None when a job is done."""
    jobs = sorted(jobs, key=lambda job: -job.cost)
    for job in jobs:
        if fresh:
            job.path.unlink(missing_ok=True)
        elif job.path.is_file():
            report(job, None)
    missing = [job for job in jobs if not job.path.is_file()]
    for folder in {job.path.parent for job in missing}:
        writable(folder)
        refuse_links(folder / "tensorboard")
    side_by_side([job.run for job in missing], workers, lambda i, at: report(missing[i], at))


def scores(cfg: DictConfig, jobs: list[Job]) -> Iterator[tuple[str, Job, NDArray]]:
    """Yield the row, the job and its test errors (problems, seeds)."""
    for job in jobs:
        yield job.method, job, job.result()["mse"]
        if cfg.extras and job.method == "Vanilla":
            yield POSTHOC, job, job.rebalanced()


def table_rows(cfg: DictConfig, found: list, rows: Iterable[str]) -> dict[str, Any]:
    """Return {row: {column: cell}} of these rows, in their order, with the paper's values."""
    cells: dict[str, Any] = {row: {} for row in rows}
    for row, job, errors in found:
        if row in cells:
            paper = cfg.table.paper.get(row)
            for problem, values in zip(job.problems, errors, strict=True):
                value = paper and paper[list(cfg.table.columns).index(problem.name)]
                cells[row][problem.name] = tables.cell(values.tolist(), value)
    return {row: columns for row, columns in cells.items() if columns}


def details(jobs: list[Job]) -> dict[str, Any]:
    """Return the learned sigma and slope (both are 1 in truth), and the least-squares error in the
    population limit."""
    found: dict[str, Any] = {"sigma": {}, "slope": {}, "least_squares": {}}
    for job in jobs:
        result = job.result()
        for i, problem in enumerate(job.problems):
            found["least_squares"][problem.name] = problem.least_squares_mse()
            if job.method in ("GAI", "BMC", "BNI"):
                learned = {"sigma": result["sigma"][i]}
                learned |= {"slope": result["weight"][i].ravel()} if problem.dims == 1 else {}
                for name, values in learned.items():
                    cells = found[name].setdefault(job.method, {})
                    cells[problem.name] = tables.cell(values.tolist())
    return found


def write(cfg: DictConfig, jobs: list[Job], seconds: float) -> dict[str, Any]:
    """Write the table of the finished jobs with its figures, and return it."""
    own = [job for job in jobs if job.problems[0].family != "nonlinear"]  # of the table
    errors = list(scores(cfg, own))
    found = {
        "rows": table_rows(cfg, errors, METHODS),
        "extras": table_rows(cfg, errors, [POSTHOC, *EXTRAS]),
        "seeds": {row: [(seed, seed) for seed in job.seeds] for row, job, _ in errors},
    }
    name = cfg.table.name
    table = {
        **found,
        **compared(found, {}, cfg.benchmark),
        "details": details(own),
        "meta": {
            **records.meta(seconds),
            "table": name,
            "cpu_seconds": round(sum(float(job.result()["cpu_seconds"]) for job in jobs)),
            "training": OmegaConf.to_container(cfg.training),
        },
    }
    for folder in (Path(cfg.folder), *([RESULTS] if cfg.publish else [])):
        tables.write(table, folder, name)
        if cfg.figures:
            with mpl.rc_context(plots.STYLE):
                plots.save(figures.plot_all(jobs, plots.colour), folder / "figures", name)
    if cfg.publish:
        pages.insert_everywhere(RESULTS, name, tables.render(table))
    return table


def make(cfg: DictConfig, reach: Callable[[float], object]) -> dict[str, Any]:
    """Train what is missing, write and return the table; `reach` receives the finished share."""
    start, jobs = time.perf_counter(), make_jobs(cfg)
    done, total = dict.fromkeys(jobs, 0.0), sum(job.cost for job in jobs)

    def report(job: Job, epoch: int | None) -> None:
        found = epoch is None and not done[job]
        done[job] = job.cost if epoch is None else job.cost * epoch / job.training.epochs
        if epoch is None:
            print(f"{job.name}: {'found' if found else 'done'}")
        reach(sum(done.values()) / total)

    workers = (os.cpu_count() or 1) if cfg.workers == "auto" else int(cfg.workers)
    run_jobs(jobs, workers, cfg.fresh, report)
    return write(cfg, jobs, time.perf_counter() - start)


def stage(settings: list[str], reach: Callable[[float], None]) -> Path:
    """Make the table as a stage of `reproduce`; returns its JSON."""
    cfg = composed("synthetic", settings)
    make(cfg, reach)
    return Path(cfg.folder) / f"{cfg.table.name}.json"


def reproduce(cfg: DictConfig) -> None:
    """Make the table and print it next to the committed one."""
    published = RESULTS / f"{cfg.table.name}.json"
    reference = json.loads(published.read_text()) if published.is_file() else None
    look: Any = {"disable": None, "bar_format": "{l_bar}{bar} {elapsed}, {remaining} left"}
    with tqdm(total=1.0, desc="synthetic benchmark", **look) as bar:
        table = make(cfg, lambda share: bar.update(share - bar.n))
    tables.show(table, cfg.table.title, reference)
    written = f"{cfg.folder}, {RESULTS}" if cfg.publish else cfg.folder
    print(f"{table['meta']['seconds']:.0f} s. Tables and figures: {written}.")
