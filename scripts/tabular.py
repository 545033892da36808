"""Compare plain, re-weighted and balanced trees and networks on every CSV file of a folder.

python scripts/tabular.py folder=data/tabular
"""

import os
import time
from pathlib import Path

from command import command
from omegaconf import DictConfig, OmegaConf


def files(cfg: DictConfig) -> list[Path]:
    """CSV files of the folder, or those named in `sets`."""
    found = {path.stem: path for path in sorted(Path(cfg.folder).glob("*.csv"))}
    if not found:
        raise SystemExit(
            f"{cfg.folder}: expected CSV files, got none. Clone antoniopedropi/"
            "Datasets-ImbalancedRegression and give folder=<its Datasets_CSV>."
        )
    wanted = list(found) if cfg.sets == "all" else [str(name) for name in cfg.sets]
    if unknown := [name for name in wanted if name not in found]:
        raise SystemExit(f"Unknown sets {', '.join(unknown)}; choose from {', '.join(found)}.")
    return [found[name] for name in wanted]


def compare(cfg: DictConfig) -> None:
    from rich.console import Console

    from engine import RESULTS
    from engine.benchmarks import tabular, tabular_summary
    from engine.runs import records
    from engine.tables import pages, plots
    from engine.tables.table import show, write

    start, paths = time.perf_counter(), files(cfg)
    workers = (os.cpu_count() or 1) if cfg.workers == "auto" else int(cfg.workers)
    found = tabular.run_all(paths, cfg, workers, Console(stderr=True).print)
    meta = records.meta(time.perf_counter() - start)
    settings = {k: OmegaConf.to_container(cfg[k]) for k in ("trees", "network", "balanced")}
    table = {
        **tabular_summary.summary(found),
        "sets": found,
        "meta": {**meta, "rows": cfg.rows, "folds": cfg.folds, **settings},
    }
    for folder in (Path(cfg.outputs), *([RESULTS] if cfg.publish else [])):
        write(table, folder, "tabular")
        plots.save(tabular_summary.figures(found), folder / "figures", "tabular")
    if cfg.publish:
        for name, text in tabular_summary.pages(table).items():
            pages.insert_everywhere(RESULTS, name, text)
    show(table, f"{len(found)} tables, errors in standard deviations of the labels")


main = command(__name__, "tabular", compare)
