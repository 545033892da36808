"""Make a table with its figures, running what is missing: see configs/table.yaml.

A table of costs has seconds per iteration and peak memory, as the paper measures them: each row in
a fresh process, so that the memory of one row does not count for another. The images are random
numbers, because a step costs the same whatever they show.
"""

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from datasets.io.arrays import read_npz
from engine import RESULTS
from engine.cli import targets
from engine.processes.memory import release_freed_memory
from engine.runs import records
from engine.runs.folder import AGAIN, PREDICTIONS
from engine.runs.run_all import Event, Progress
from engine.tables import pages
from engine.tables import table as tables
from engine.tables.compare import check_names, compare, configs, expanded, group_of, row_of
from engine.tables.intervals import Seed, swept
from engine.training import build

# Overrides of these groups on the command line are passed to every run.
FOR_RUNS = ("preset", "paths", "dataset", "metrics", "task", "trainer", "log", "trust", "images")
SAMPLES = 20_000  # labels that the priors are fitted to, in a table of costs

ROW = ("experiment", "overrides", "changes", "seeds", "posthoc", "sweep")  # settings of a row


def passed_on(overrides: list[str]) -> list[str]:
    """Return the overrides of the command line that every run receives."""
    return [text for text in overrides if group_of(text) in FOR_RUNS]


def main(cfg: DictConfig) -> None:
    """Make the table of a command line and print the paths of the files."""
    given = list(HydraConfig.get().overrides.task)
    for path in make(cfg, [*passed_on(given), *cfg.overrides]):
        print(path)


def log(event: Event) -> None:
    print(event, file=sys.stderr)


def make(cfg: DictConfig, overrides: list[str], progress: Progress = log) -> list[Path]:
    """Show and write the table and its figures; return the paths of the files."""
    start = time.time()
    if not cfg.name:  # e.g. utkface_sigma_mini: table imdb_wiki_sigma, dataset utkface, paths mini
        named = cfg.table.name.replace(cfg.benchmark.name, cfg.benchmark.dataset)
        cfg.name = named + cfg.paths.suffix
    select_rows(cfg)
    if cfg.benchmark.dataset not in cfg.benchmark.cited:
        OmegaConf.update(cfg, "table.paper", {}, merge=False, force_add=True)
    measured = cfg.table.get("measure") == "cost"
    content, done, replicates = (costs if measured else compare)(cfg, overrides, progress)
    values, root = swept(content), Path(cfg.paths.outputs).resolve()
    folders = {row: [Path(one["folder"]).resolve() for one in of] for row, of in done.items()}
    content["meta"] = {
        **records.meta(time.time() - start),
        "table": cfg.table.name,
        "preset": cfg.preset,
        "runs": {row: [str(one.relative_to(root)) for one in of] for row, of in folders.items()},
    }
    if done:  # whenever they were run
        content["meta"]["run_seconds"] = round(
            sum(o["seconds"] for of in done.values() for o in of)
        )
    tables.show(content, cfg.table.title)
    written = write(cfg, content, replicates)
    if cfg.publish:
        kept = {row: of_row for row, of_row in folders.items() if row not in values}
        arrays = predictions(kept, content.get("seeds", {}))
        written += tables.write_npz(RESULTS / f"{cfg.name}_predictions.npz", arrays)
    diverged = [row for row, of in done.items() if any(one.get("divergence") for one in of)]
    if failed := [row for row in diverged if row not in values]:  # a curve can miss a value
        raise FloatingPointError(
            f"{written[0]}: without figures, because these rows diverged: {', '.join(failed)}. "
            "Lower their learning rates; train.log of each run states the step."
        )
    if (figures := cfg.table.get("figures")) and folders:
        plot = targets.find(figures, cfg.get("trust"), "table")
        made = {row: list(filter(has_results, of_row)) for row, of_row in folders.items()}
        plotted = {row: of_row for row, of_row in made.items() if of_row}
        written += plot(cfg, plotted, written[0].parent / "figures")
    return written


def has_results(folder: Path) -> bool:
    """Whether figures can be plotted from a run: there are predictions or weights."""
    return any((folder / name).exists() for name in (PREDICTIONS, "checkpoints"))


def write(cfg: DictConfig, content: dict[str, Any], replicates: dict[str, Any]) -> list[Path]:
    """Write the files of a table to results/ and its pages, or to <outputs>/tables."""
    folder = RESULTS if cfg.publish else Path(cfg.paths.outputs) / "tables"
    written = tables.write(content, folder, cfg.name, replicates)
    if cfg.publish:
        pages.insert_everywhere(RESULTS, cfg.name, written[0].read_text())
    return written


def predictions(runs: dict[str, list[Path]], seeds: dict[str, list[Seed]]) -> dict[str, NDArray]:
    """Return {"<row>/<seed of stage 1>-<seed of stage 2>/<val or test>": (N,)} and the labels,
    "val" and "test", of rows with stored predictions of one number per sample.

    Post-hoc rows are left out: they follow from the others. Half precision, 0.05% of a number, is
    enough below 256.
    """
    arrays: dict[str, NDArray] = {}
    for row, folders in runs.items():
        for folder, (first, second) in zip(folders, seeds[row], strict=True):
            path = folder / PREDICTIONS
            stored = path.is_file() and not folder.name.startswith("posthoc-")
            found = read_npz(path, advice=AGAIN) if stored else {}
            for split in ("val", "test"):
                pred = found.get(f"{split}_pred")
                if pred is not None and pred.shape[1:] == (1,):
                    dtype = np.float16 if np.abs(pred).max() < 256 else np.float32
                    arrays[f"{row}/{first}-{second}/{split}"] = pred.ravel().astype(dtype)
                    arrays[split] = found[f"{split}_target"].ravel()
    return arrays


def costs(cfg: DictConfig, overrides: list[str], progress: Progress) -> tuple[Any, Any, Any]:
    """Return {"rows"} of seconds per iteration and peak memory; no runs and no replicates."""
    rows = {}
    for name, row in expanded(cfg.table.rows).items():
        progress(Event(name, "running"))
        start = time.time()
        (run,) = configs(row, 1, overrides)
        cost = measure(run, cfg.iterations)
        rows[name] = row_of(cfg.table, name, lambda key, cost=cost: [cost[key]])
        progress(Event(name, "done", time.time() - start))
    return {"rows": rows}, {}, {}


def select_rows(cfg: DictConfig) -> None:
    """Apply `rows`, `without` and `add` to the table and its extras. The name of a sweep stands for
    all of its values."""
    added = targets.plain(cfg.add) if cfg.add else {}
    if cfg.rows is None and not cfg.without and not added:
        return
    sections = {name: cfg.table.get(name) or {} for name in ("rows", "extras")}
    found = {name: expanded(rows) for name, rows in sections.items()}
    known = [str(name) for rows in (*sections.values(), *found.values()) for name in rows]
    for name, row in added.items():
        check_names(f"add.{name}", [] if isinstance(row, str) else row, ROW)
    if twice := [name for name in added if name in known]:
        raise ValueError(f"add: the table has a row {twice[0]} already; choose another name.")
    check_names("rows", cfg.rows or [], [*known, *added])
    check_names("without", cfg.without, known)
    for section, rows in found.items():
        kept = {}
        for name, row in rows.items():
            names = {name, row.get("curve")}
            if not names & set(cfg.without) and (cfg.rows is None or names & set(cfg.rows)):
                kept[name] = row
        if section == "rows":
            kept |= {n: {"experiment": r} if isinstance(r, str) else r for n, r in added.items()}
        if section == "rows" and not kept:
            raise ValueError("No row is left; name at least one in `rows`, fewer in `without`.")
        OmegaConf.update(cfg, f"table.{section}", kept, merge=False, force_add=True)


def measure(cfg: DictConfig, iterations: int) -> dict[str, float]:
    """Return {"seconds", "memory_mb"} of one training step of a stage-2 config with backbone."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure_here, plain, iterations).result()


def measure_here(plain: Any, iterations: int) -> dict[str, float]:
    cfg: Any = OmegaConf.create(plain)
    cfg.features = {"mode": "none"}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rng = np.random.default_rng(0)
    labels = np.clip(rng.normal(35, 12, (SAMPLES, 1)).round(), 0, 100).astype(np.float32)
    task: Any = build.task(cfg, labels)
    task.model.freeze(cfg.freeze_bn)
    task.to(device).train()
    optimizer = build.optimizer(cfg, task)
    index = torch.arange(cfg.trainer.batch_size)
    side = cfg.dataset.size
    batch = {
        "input": torch.randn(len(index), 3, side, side, device=device),
        "target": torch.from_numpy(labels)[index].to(device),
        "meta": {"index": index.to(device)},
    }
    if device.type == "cuda":  # the memory that the fit of a prior took does not count
        torch.cuda.reset_peak_memory_stats()
    elif sys.platform == "linux":
        release_freed_memory()
        Path("/proc/self/clear_refs").write_text("5")
    times = []
    for _ in range(1 + iterations):
        start = time.perf_counter()
        loss, _ = task(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
    elif sys.platform == "linux":  # where ru_maxrss begins with the parent's memory
        status = Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) / 2**10
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on a Mac
    return {"seconds": float(np.mean(times[1:])), "memory_mb": peak}  # the first step warms up
