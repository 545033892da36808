"""Make a table of the paper, running what is missing: see configs/table.yaml."""

import re
import sys
import time
from pathlib import Path
from typing import Any

from command import command
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_method
from omegaconf import DictConfig

from engine import RESULTS, provenance
from engine.tables import table as tables
from engine.tables.compare import Say, compare, configs
from engine.tables.cost import measure

FOR_RUNS = ("preset", "paths", "dataset", "trainer", "log")  # what is passed on to every run


def passed_on(said: list[str]) -> list[str]:
    """Those overrides of the command line that every run is to hear."""
    return [text for text in said if re.split(r"[.=]", text.lstrip("+~"))[0] in FOR_RUNS]


def costs(cfg: DictConfig, overrides: list[str], say: Say) -> dict[str, Any]:
    """{"rows"} of seconds per iteration and peak memory."""
    rows = {}
    for name, row in cfg.table.rows.items():
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
    forget_other_faces(cfg)
    if cfg.table.get("measure") == "cost":
        content = costs(cfg, overrides, say)
    else:
        content = compare(cfg.table, cfg.seeds, overrides, cfg.extras, say, cfg.jobs)
    runs = content.pop("runs", {})
    about = {"preset": cfg.preset, "runs": places_in(cfg.paths.outputs, runs)}
    if "run_seconds" in content:  # whenever they were run; they may have been found
        about["run_seconds"] = round(content.pop("run_seconds"))
    table = {**content, "meta": {**provenance.meta(time.time() - start), **about}}
    tables.show(table, cfg.table.title)
    folder = RESULTS if cfg.publish else Path(cfg.paths.outputs) / "tables"
    written = tables.write(table, folder, cfg.name)
    readme = RESULTS.parent / "README.md"
    if cfg.publish and tables.has_place(readme, cfg.name):
        tables.insert(readme, cfg.name, tables.render(table))
    if cfg.table.get("figures"):
        places = {row: [Path(place) for place in of_row] for row, of_row in runs.items()}
        written += get_method(cfg.table.figures)(cfg, places, folder / "figures")
    return written


def places_in(outputs: str, runs: dict[str, list[str]]) -> dict[str, list[str]]:
    """The folders of the runs, as seen from that of the outputs."""
    root = Path(outputs).resolve()
    return {
        row: [str(Path(place).resolve().relative_to(root)) for place in places]
        for row, places in runs.items()
    }


def forget_other_faces(cfg: DictConfig) -> None:
    """The paper's ages are of IMDB-WIKI: a table of another dataset has none beside it."""
    if cfg.table.get("paper") and faces(cfg) != "imdb_wiki":
        cfg.table.paper = {}


def own_name(cfg: DictConfig) -> str:
    """E.g. utkface_sigma_mini: table imdb_wiki_sigma, dataset utkface, paths mini."""
    return cfg.table.name.replace("imdb_wiki", faces(cfg)) + cfg.paths.suffix


def faces(cfg: DictConfig) -> str:
    """The name of the faces; that of IMDB-WIKI where there are none."""
    return Path(cfg.dataset.get("csv", "imdb_wiki")).stem


def tell(text: str) -> None:
    print(text, file=sys.stderr)


@command("table")
def main(cfg: DictConfig) -> None:
    said = list(HydraConfig.get().overrides.task)
    for path in make(cfg, [*passed_on(said), *cfg.overrides]):
        print(path)


if __name__ == "__main__":
    main()
