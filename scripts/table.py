"""Make a table of the paper, running what is missing: see configs/table.yaml."""

import sys
import time
from pathlib import Path
from typing import Any

# The scripts folder on the path would let scripts/synthetic.py hide the package synthetic/.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import hydra  # noqa: E402
from hydra.core.hydra_config import HydraConfig  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

from engine import tables  # noqa: E402
from engine.comparison import compare, configs  # noqa: E402
from engine.cost import measure  # noqa: E402
from engine.run import composed  # noqa: E402

PUBLISHED = Path(sys.path[0]) / "results"


def overrides(cfg: DictConfig) -> list[str]:
    """What the table says to every run."""
    chosen = [f"preset={cfg.preset}", f"paths={cfg.paths}"]
    chosen += [] if cfg.dataset is None else [f"dataset={cfg.dataset}"]
    return [*chosen, *cfg.overrides]


def costs(cfg: DictConfig) -> dict[str, Any]:
    """{"rows"} of seconds per iteration and peak memory."""
    rows = {}
    for name, row in cfg.table.rows.items():
        print(f"{name}: measuring {cfg.iterations} steps", file=sys.stderr)
        (run,) = configs(row, 1, overrides(cfg))
        cost = measure(run, cfg.iterations)
        paper = zip(cfg.table.columns, cfg.table.paper[name], strict=True)
        rows[name] = {column: tables.cell([cost[column]], value) for column, value in paper}
    return {"rows": rows}


@hydra.main(version_base="1.3", config_path="../configs", config_name="table")
def main(cfg: DictConfig) -> None:
    start = time.time()
    if cfg.table.get("measure") == "cost":
        content = costs(cfg)
    else:
        content = compare(
            cfg.table,
            cfg.seeds,
            overrides(cfg),
            cfg.extras,
            lambda text: print(text, file=sys.stderr),
        )
    about = {"preset": cfg.preset, "paths": cfg.paths, "runs": content.pop("runs", {})}
    table = {**content, "meta": {**tables.meta(time.time() - start), **about}}
    first = next(iter(cfg.table.rows.values()))
    paths = composed("train", [f"experiment={first.experiment}", *overrides(cfg)]).paths
    choice = HydraConfig.get().runtime.choices["table"]
    choice = choice.replace("imdb_wiki", cfg.dataset or "imdb_wiki")
    name = cfg.name or f"{choice}{paths.suffix}"
    folder = PUBLISHED if cfg.publish else Path(paths.outputs) / "tables"
    tables.show(table, cfg.table.title)
    for path in tables.write(table, folder, name):
        print(path)


if __name__ == "__main__":
    main()
