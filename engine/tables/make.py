"""Make a table with its figures, running what is missing: see configs/table.yaml."""

import re
import sys
import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from engine import RESULTS
from engine.cli import targets
from engine.runs import provenance
from engine.tables import pages
from engine.tables import table as tables
from engine.tables.compare import Say, compare, configs, expanded
from engine.tables.cost import measure
from engine.tables.intervals import swept

# The groups of which what is said on the command line goes to every run.
FOR_RUNS = ("preset", "paths", "dataset", "metrics", "task", "trainer", "log")
FOR_RUNS += ("trust", "images")


def passed_on(said: list[str]) -> list[str]:
    """Those overrides of the command line that every run is to hear."""
    return [text for text in said if re.split(r"[.=]", text.lstrip("+~"))[0] in FOR_RUNS]


def costs(cfg: DictConfig, overrides: list[str], say: Say) -> dict[str, Any]:
    """{"rows"} of seconds per iteration and peak memory."""
    rows = {}
    for name, row in expanded(cfg.table.rows).items():
        say(f"{name}: measuring {cfg.iterations} steps")
        (run,) = configs(row, 1, overrides)
        cost = measure(run, cfg.iterations)
        paper = zip(cfg.table.columns, cfg.table.paper[name], strict=True)
        rows[name] = {column: tables.cell([cost[column]], value) for column, value in paper}
    return {"rows": rows}


def make(cfg: DictConfig, overrides: list[str], say: Say | None = None) -> list[Path]:
    """Show and write the table and its figures; the paths of the files."""
    start, say = time.time(), say or tell
    cfg.name = cfg.name or own_name(cfg)
    forget_other_datasets(cfg)
    if cfg.table.get("measure") == "cost":
        content = costs(cfg, overrides, say)
    else:
        content = compare(
            cfg.table,
            cfg.seeds,
            overrides,
            cfg.extras,
            say,
            cfg.jobs,
            cfg.benchmark,
            cfg.stage1_seeds,
        )
    runs, draws = content.pop("runs", {}), content.pop("draws", {})
    diverged = content.pop("diverged", [])
    failed = [row for row in diverged if row not in swept(content)]  # a curve does without a value
    about = {"table": cfg.table.name, "preset": cfg.preset}
    about["runs"] = folders_in(cfg.paths.outputs, runs)
    if "run_seconds" in content:  # whenever they were run; they may have been found
        about["run_seconds"] = round(content.pop("run_seconds"))
    table = {**content, "meta": {**provenance.meta(time.time() - start), **about}}
    tables.show(table, cfg.table.title)
    folder = RESULTS if cfg.publish else Path(cfg.paths.outputs) / "tables"
    written = tables.write(table, folder, cfg.name, draws)
    if cfg.publish:
        pages.insert_everywhere(pages.beside(RESULTS), cfg.name, tables.render(table))
    if (figures := cfg.table.get("figures")) and runs and not failed:
        folders = {row: [Path(one) for one in of_row] for row, of_row in runs.items() if of_row}
        written += targets.find(figures, cfg.get("trust"))(cfg, folders, folder / "figures")
    if failed:
        raise FloatingPointError(
            f"{written[0]}: without figures, as these rows diverged: {', '.join(failed)}. "
            "Lower their learning rates; their runs' train.log say where it happened."
        )
    return written


def folders_in(outputs: str, runs: dict[str, list[str]]) -> dict[str, list[str]]:
    """The folders of the runs, as seen from that of the outputs."""
    root = Path(outputs).resolve()
    return {
        row: [str(Path(one).resolve().relative_to(root)) for one in folders]
        for row, folders in runs.items()
    }


def forget_other_datasets(cfg: DictConfig) -> None:
    """The paper's numbers stand beside those of the datasets that its benchmark names."""
    if cfg.table.get("paper") and cfg.benchmark.dataset not in cfg.benchmark.cited:
        cfg.table.paper = {}


def own_name(cfg: DictConfig) -> str:
    """E.g. utkface_sigma_mini: table imdb_wiki_sigma, dataset utkface, paths mini."""
    return cfg.table.name.replace(cfg.benchmark.name, cfg.benchmark.dataset) + cfg.paths.suffix


def tell(text: str) -> None:
    print(text, file=sys.stderr)
