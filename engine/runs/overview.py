"""List, diff, compare and remove the runs of an outputs folder: see configs/runs.yaml."""

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from datasets.io.arrays import read_npz
from datasets.io.files import lock
from engine.cli.settings import leaves
from engine.runs import folder as runs
from engine.runs import identity, records

HEAD = ("run", "row", "dataset", "seed", "state", "metric", "differs in")
SAME = ("paths", "log", "seed", "trust", "resume", "rerun")  # groups that `differs in` leaves out


class Run(NamedTuple):
    """A run folder: its config as {dotted name: value}, and metrics.json or {}."""

    folder: Path
    config: dict[str, Any]
    result: dict[str, Any]

    @property
    def name(self) -> str:
        """E.g. imdb_wiki/bmc/laptop/seed0-imdb_wiki_mini-0123456789."""
        return "/".join((*str(self.config["name"]).split("/"), *self.folder.parts[-2:]))

    @property
    def dataset(self) -> str:
        return f"{self.config.get('benchmark.dataset')}{self.config.get('paths.suffix') or ''}"

    @property
    def state(self) -> str:
        """finished, diverged, running, or unfinished: interrupted or failed."""
        if self.result:
            return "diverged" if self.result.get("divergence") else "finished"
        try:
            with (self.folder / "lock").open("rb") as file:
                lock(file, wait=False)
        except BlockingIOError:
            return "running"
        except FileNotFoundError:
            pass
        return "unfinished"

    def value(self, metric: str) -> float | None:
        return self.result.get("metrics", {}).get(f"test/{metric}")


def find(outputs: Path, pattern: str = "") -> list[Run]:
    """Return the runs below `outputs` whose names contain `pattern`."""
    found = []
    for path in sorted(outputs.glob("**/seed*-*/config.yaml")):
        config = dict(leaves(runs.read_plain_config(path.parent)))
        result = runs.finished(path.parent) or {}
        found.append(Run(path.parent, config, result))
    return [run for run in found if pattern in run.name]


def listed(found: Sequence[Run], metric: str | None = None) -> list[tuple[str, ...]]:
    """Return a line for each run; metric: by default the one that its epoch was selected by."""
    groups: dict[tuple, list[Run]] = defaultdict(list)
    for run in found:
        groups[run.config["name"], run.config["preset"], run.dataset].append(run)
    lines = []
    for run in found:
        group = groups[run.config["name"], run.config["preset"], run.dataset]
        changed = dict.fromkeys(key for other in group for key in different(run, other))
        own = [key for key in changed if key.split(".")[0] not in SAME]
        name = metric or run.config["select.metric"]
        lines.append(
            (
                *(run.name, str(run.config["row"]), run.dataset, str(run.config["seed"])),
                *(run.state, f"{name} {text(run.value(name))}"),
                " ".join(f"{key}={run.config.get(key)}" for key in own),
            )
        )
    return lines


def different(one: Run, other: Run) -> dict[str, tuple[Any, Any]]:
    """Return {setting: both values} of the settings that differ."""
    keys = dict.fromkeys([*one.config, *other.config])
    pairs = {key: (one.config.get(key), other.config.get(key)) for key in keys}
    return {k: (a, b) for k, (a, b) in pairs.items() if a != b and not isinstance(a or b, dict)}


def diff(one: Run, other: Run) -> dict[str, tuple[Any, Any]]:
    """Return what differs between two runs: settings, commit, code, data and stage 1."""
    found = different(one, other)
    commits = [run.result.get("meta", {}).get("commit") for run in (one, other)]
    parts = []
    for run in (one, other):
        path = run.folder / identity.FILE
        parts.append(records.read(path, "Remove it.") if path.is_file() else {})
    about = {"commit": tuple(commits)}
    about |= {k: (parts[0].get(k), parts[1].get(k)) for k in ("files", "images", "code", "stage 1")}
    return found | {key: (a, b) for key, (a, b) in about.items() if a != b}


def compare(
    ours: Sequence[Run], theirs: Sequence[Run], metrics: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return {metric: difference with both 95% intervals}, as in the tables; each side may have
    several seeds."""
    from engine.tables.columns import column
    from engine.tables.intervals import difference

    first = ours[0].config
    benchmark: dict[str, Any] = runs.read_plain_config(ours[0].folder).get("benchmark") or {}
    names = list(metrics) or list(first["log.show"])

    def side(of_row: Sequence[Run], name: str) -> Mapping[str, Any]:
        stored = [run.folder / runs.REPLICATES for run in of_row]
        arrays = [read_npz(path, advice=runs.AGAIN) for path in stored if path.is_file()]
        values = {
            (run.config.get("backbone.seed", run.config["seed"]), run.config["seed"]): value
            for run in of_row
            if (value := run.value(name)) is not None
        }
        known = arrays and len(arrays) == len(of_row) and all(name in one for one in arrays)
        replicates = np.mean([one[name] for one in arrays], 0) if known else None
        return {"values": values, "replicates": replicates}

    return {
        name: difference(side(ours, name), side(theirs, name), column(benchmark, name).better)
        for name in names
    }


def remove(found: Sequence[Run], states: Sequence[str]) -> list[Run]:
    """Delete the folders of the runs in these states, and return the runs."""
    chosen = [run for run in found if run.state in states]
    for run in chosen:
        with runs.locked(run.folder):  # refuses links
            shutil.rmtree(run.folder)
    return chosen


def main(cfg: DictConfig) -> None:
    """Do what the command line asks for and print the result."""
    found = find(Path(cfg.outputs), cfg.name or "")
    lines: list[tuple[str, ...]]
    if cfg.remove:
        lines = [("removed", run.name, run.state) for run in remove(found, cfg.remove)]
    elif cfg.diff:
        one, other = (select(found, pattern, most=1)[0] for pattern in pair(cfg.diff))
        lines = [(key, *map(str, values)) for key, values in diff(one, other).items()]
    elif cfg.compare:
        ours, theirs = (select(found, pattern) for pattern in pair(cfg.compare))
        lines = [("metric", "difference", "over seeds", "over images", "")]
        for name, about in compare(ours, theirs, cfg.metrics).items():
            shown = (text(about[key]) for key in ("mean", "seeds", "images"))
            lines.append((name, *shown, about["verdict"]))
    else:
        lines = [HEAD, *listed(found, next(iter(cfg.metrics), None))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(f"{one:<{n}}" for one, n in zip(line, widths, strict=True)).rstrip())


def text(value: float | tuple[float, float] | None) -> str:
    """Return a number, or an interval, with three digits; "-" for None."""
    if isinstance(value, tuple):
        return " to ".join(map(text, value))
    return "-" if value is None else f"{value:.3f}"


def pair(names: Sequence[str]) -> Sequence[str]:
    if len(names) != 2:
        raise ValueError("diff and compare take two runs, e.g. diff=[bmc/laptop,gai/laptop].")
    return names


def select(found: Sequence[Run], pattern: str, most: int | None = None) -> list[Run]:
    """Return the finished runs whose names contain the pattern: one, or up to `most`."""
    chosen = [run for run in found if pattern in run.name and run.state == "finished"]
    if not chosen:
        raise ValueError(f"{pattern}: no finished run has this in its name; see scripts/runs.py.")
    if most is not None and len(chosen) > most:
        names = ", ".join(run.name for run in chosen)
        raise ValueError(f"{pattern}: expected one run, but these names fit: {names}.")
    return chosen
