"""List, diff, compare and remove the runs of an outputs folder: see configs/runs.yaml."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from datasets.io.files import lock
from engine.cli.targets import leaves
from engine.runs import folder as runs
from engine.runs import identity, records

HEAD = ("run", "row", "dataset", "seed", "state", "metric", "differs in")
IDENTITY = ("files", "images", "code", "stage 1")  # parts of identity.json that a diff shows
SAME = ("paths", "log", "seed", "resume", "rerun", "commit", *IDENTITY)  # not in the list


class Run(NamedTuple):
    """A run folder: its name below the outputs, {dotted name: value} of its settings, commit and
    data, and the content of metrics.json, if it is finished."""

    name: str
    folder: Path
    settings: dict[str, Any]
    result: dict[str, Any]

    @property
    def dataset(self) -> str:
        return f"{self.settings.get('benchmark.dataset')}{self.settings.get('paths.suffix') or ''}"

    @property
    def state(self) -> str:
        """finished, diverged, damaged, running, or unfinished: interrupted or failed."""
        if "damage" in self.settings:
            return "damaged"
        if self.result:
            return "diverged" if self.result.get("divergence") else "finished"
        path = self.folder / "lock"
        try:
            if path.is_file():  # opening a pipe would wait for ever
                with path.open("rb") as file:
                    lock(file, wait=False)
        except BlockingIOError:
            return "running"
        return "unfinished"

    def value(self, metric: str) -> float | None:
        return self.result.get("metrics", {}).get(f"test/{metric}")


def find(outputs: Path, pattern: str = "") -> list[Run]:
    """Return the runs below `outputs` whose names contain `pattern`."""
    if not outputs.is_dir():
        raise FileNotFoundError(f"{outputs}: no such folder; outputs= takes that of your runs.")
    found = []
    for folder in sorted(path.parent for path in outputs.glob("**/seed*-*/config.yaml")):
        name = str(folder.relative_to(outputs))
        if pattern in name:
            file = folder / identity.FILE
            try:
                settings = dict(leaves(runs.read_plain_config(folder)))
                result = runs.finished(folder) or {}
                parts = records.read(file, "Remove it.") if file.is_file() else {}
            except ValueError as error:  # the other runs are listed all the same
                found.append(Run(name, folder, {"damage": str(error)}, {}))
                continue
            settings |= {key: parts.get(key) for key in IDENTITY}
            settings["commit"] = result.get("meta", {}).get("commit")
            found.append(Run(name, folder, settings, result))
    return found


def different(found: Sequence[Run]) -> dict[str, list[Any]]:
    """Return {setting: its value in each run} of the settings that differ."""
    keys = dict.fromkeys(key for run in found for key in run.settings)
    rows = {key: [run.settings.get(key) for run in found] for key in keys}
    plain = {k: v for k, v in rows.items() if not any(isinstance(one, dict) for one in v)}
    return {k: v for k, v in plain.items() if any(one != v[0] for one in v)}


def listed(found: Sequence[Run], metric: str | None = None) -> list[tuple[str, ...]]:
    """Return a line for each run, with the settings in which runs of the same row, preset and
    dataset differ; metric: by default the one that selects the epoch."""
    lines = []
    for run in found:
        group = [one for one in found if one.folder.parent == run.folder.parent]
        keys = different([one for one in group if one.dataset == run.dataset])
        about, own = run.settings, [key for key in keys if key.split(".")[0] not in SAME]
        changes = " ".join(f"{key}={about.get(key)}" for key in own)
        name = metric or about.get("select.metric", "-")
        shown = (run.name, about.get("row"), run.dataset, about.get("seed"), run.state)
        lines.append((*map(str, shown), f"{name} {text(run.value(name))}", changes))
    return lines


def compare(
    ours: Sequence[Run], theirs: Sequence[Run], metrics: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return {metric: difference with both 95% intervals}, as in the tables; each side may have
    several seeds."""
    from engine.tables.columns import column
    from engine.tables.compare import mean_replicates
    from engine.tables.intervals import difference

    names = list(metrics) or list(ours[0].settings["log.show"])
    replicates = [mean_replicates([run.result for run in row], names) for row in (ours, theirs)]

    def side(number: int, name: str) -> Mapping[str, Any]:
        values = {
            (run.settings.get("backbone.seed", run.settings["seed"]), run.settings["seed"]): value
            for run in (ours, theirs)[number]
            if (value := run.value(name)) is not None
        }
        return {"values": values, "replicates": replicates[number].get(name)}

    if unknown := [name for name in names if ours[0].value(name) is None]:
        raise ValueError(f"The runs have no test metric {unknown[0]!r}; see their metrics.json.")
    benchmark = ours[0].settings["benchmark"]
    found = {
        name: difference(side(0, name), side(1, name), column(benchmark, name).better)
        for name in names
    }
    if not any(about["pairs"] for about in found.values()):
        raise ValueError("The runs have no seed in common; differences are taken seed by seed.")
    return found


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
        chosen = [select(found, pattern, most=1)[0] for pattern in cfg.diff]
        lines = [(key, *map(str, values)) for key, values in different(chosen).items()]
    elif cfg.compare:
        ours, theirs = (select(found, pattern) for pattern in cfg.compare)
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


def select(found: Sequence[Run], pattern: str, most: int | None = None) -> list[Run]:
    """Return the finished runs whose names contain the pattern, from one to `most`."""
    chosen = [run for run in found if pattern in run.name and run.state == "finished"]
    if not chosen:
        raise ValueError(f"{pattern}: no finished run has this in its name; see scripts/runs.py.")
    if most is not None and len(chosen) > most:
        names = ", ".join(run.name for run in chosen)
        raise ValueError(f"{pattern}: expected one run, but these names fit: {names}.")
    return chosen
