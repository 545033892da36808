"""A table of runs: each row is an experiment, each number a mean over seeds, beside the paper's.

    a table's config: columns, rows {row: {experiment, overrides, seeds}}, paper {row: [numbers]}

The runs are found by their configs; those that are missing are run.
"""

from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from engine.folder import finished, folder
from engine.run import composed, first_stage, key, run
from engine.tables import cell

Say = Callable[[str], None]


def configs(row: Mapping[str, Any], seeds: int, overrides: list[str]) -> list[DictConfig]:
    """The train config of each seed of a row; a row may have fewer seeds than the table, and one
    without an experiment is only cited."""
    if row.get("experiment") is None:
        return []
    own = list(row.get("overrides") or [])
    names = [f"experiment={row['experiment']}", *overrides, *own]
    return [composed("train", [*names, f"seed={s}"]) for s in range(row.get("seeds") or seeds)]


def is_finished(cfg: DictConfig) -> bool:
    return finished(folder(cfg, key(cfg, first_stage(cfg)))) is not None


def compare(table: DictConfig, seeds: int, overrides: list[str], extras: bool, say: Say) -> dict:
    """{"rows", "extras", "runs"}: find or run every cell. `say` is told what is going on."""
    sections: dict[str, dict[str, Any]] = {"rows": {}, "extras": {}}
    runs: dict[str, list[str]] = {}
    for section in ("rows", "extras") if extras else ("rows",):
        for name, row in (table.get(section) or {}).items():
            done = []
            for cfg in configs(row, seeds, overrides):
                say(f"{name}, seed {cfg.seed}: {'found' if is_finished(cfg) else 'running'}")
                done.append(run(cfg))
            paper = (table.get("paper") or {}).get(name) or [None] * len(table.columns)
            sections[section][name] = {
                column: cell([one["metrics"][f"test/{column}"] for one in done], published)
                for column, published in zip(table.columns, paper, strict=True)
            }
            runs[name] = [one["folder"] for one in done]
    return {**sections, "runs": runs}
