"""Where does balancing pay on tables? Every CSV file of a folder, five folds, trees and networks.

python scripts/tabular.py folder=data/tabular
"""

import os
import time
from pathlib import Path

from command import command
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from engine import RESULTS
from engine.benchmarks import tabular
from engine.runs import provenance
from engine.tables import plots
from engine.tables.table import show, write


def files(cfg: DictConfig) -> list[Path]:
    folder = Path(cfg.folder)
    found = {path.stem: path for path in sorted(folder.glob("*.csv"))}
    if not found:
        raise SystemExit(
            f"{folder}: expected CSV files, got none. Clone antoniopedropi/"
            "Datasets-ImbalancedRegression and give folder=<its Datasets_CSV>."
        )
    wanted = list(found) if cfg.sets == "all" else [str(name) for name in cfg.sets]
    if unknown := [name for name in wanted if name not in found]:
        raise SystemExit(f"sets: {', '.join(unknown)} unknown; choose out of {', '.join(found)}.")
    return [found[name] for name in wanted]


def settings(cfg: DictConfig) -> tabular.Settings:
    return tabular.Settings(
        folds=cfg.folds,
        rounds=cfg.trees.rounds,
        leaves=cfg.trees.leaves,
        learning_rate=cfg.trees.learning_rate,
        components=cfg.balanced.components,
        sigmas=tuple(cfg.balanced.sigmas),
        ranges=cfg.ranges,
        hidden=tuple(cfg.network.hidden),
        iterations=cfg.network.iterations,
    )


@command("tabular")
def main(cfg: DictConfig) -> None:
    start, paths = time.perf_counter(), files(cfg)
    workers = (os.cpu_count() or 1) if cfg.workers == "auto" else int(cfg.workers)
    console = Console(stderr=True)
    try:
        found = tabular.run_all(
            paths, dict(cfg.targets), cfg.rows, settings(cfg), workers, console.print
        )
    except ValueError as error:
        raise SystemExit(str(error)) from None
    meta = provenance.meta(time.perf_counter() - start)
    numbers = {k: OmegaConf.to_container(cfg[k]) for k in ("trees", "network", "balanced")}
    table = {
        **tabular.summary(found),
        "sets": found,
        "meta": {**meta, "rows": cfg.rows, "folds": cfg.folds, **numbers},
    }
    for folder in (Path(cfg.outputs), *([RESULTS] if cfg.publish else [])):
        write(table, folder, "tabular")
        plots.save(tabular.figures(found), folder / "figures", "tabular")
    show(table, f"{len(found)} tables, errors in standard deviations of the labels")


if __name__ == "__main__":
    main()
