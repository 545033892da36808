"""Leaderboard: every method with the same budget on every benchmark; see configs/leaderboard.yaml.

a method       a loss with or without a regulariser, or post-hoc balancing of the plain loss
its settings   as many random ones as every other method has, each run with the same seeds. Setting
               i has the same learning rate for every method
its choice     the setting with the best mean of the selection metric over seeds, on validation
its number     the test metric of that setting; intervals and verdicts as in every table
its mean rank  over the benchmarks. Two mean ranks of k methods on n benchmarks differ (Nemenyi,
               95%) if they are further apart than q sqrt(k (k + 1) / (6 n)), where q is the
               quantile of the studentized range divided by sqrt(2)

The content of the JSON is that of a table with a column for each benchmark, and "trials":
{benchmark: {method: [{"settings", "val", "test", "seconds", "chosen"}]}}, and "ranks".
"""

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from matplotlib.figure import Figure
from omegaconf import DictConfig
from scipy import stats

from engine.cli import targets
from engine.runs import records
from engine.runs.run import composed, result
from engine.runs.run_all import Progress, run_all
from engine.tables import table as tables
from engine.tables.compare import check_names, configs, mean_replicates, metric
from engine.tables.intervals import LEVEL, compared
from engine.tables.make import log, passed_on, write
from engine.tables.plots import colour, save, styled
from engine.tables.posthoc import add_rows

PLAIN, REWEIGHTED = "Plain", "Re-weighted"
Results = list[dict[str, Any]]  # of the seeds
Trials = list[tuple[dict[str, float], list[DictConfig]]]  # settings, and a config for each seed


def main(cfg: DictConfig) -> None:
    """Make the leaderboard of a command line and print the paths of its files."""
    start, given = time.time(), list(HydraConfig.get().overrides.task)
    content, replicates = compare(cfg, [*passed_on(given), *cfg.overrides], log)
    budget = {"settings": cfg.settings, "seeds": cfg.seeds}
    content["meta"] = {**records.meta(time.time() - start), **budget}
    tables.show(content, f"Leaderboard, {cfg.settings} settings x {cfg.seeds} seeds for each row")
    written = write(cfg, content, replicates)
    figures = written[0].parent / "figures"
    written += save({"ranks": diagram(content)}, figures, cfg.name)
    for path in written:
        print(path)


def compare(cfg: DictConfig, overrides: list[str], progress: Progress) -> tuple[Any, Any]:
    """Find or run every setting of every method; return the content and the replicates."""
    check_names("benchmarks", cfg.benchmarks, cfg.known)
    known = {name: cfg.known[name] for name in cfg.benchmarks}
    for setting in ("losses", "regularizers"):
        every = [name for about in known.values() for name in about[setting]]
        check_names(setting, cfg[setting] or [], every)
    wanted = {name: trials(cfg, about, overrides) for name, about in known.items()}
    runs = {
        f"{name}: {method}, setting {i}, seed {one.seed}": one
        for name, methods in wanted.items()
        for method, of_method in methods.items()
        for i, (_, seeds) in enumerate(of_method)
        for one in seeds
    }
    run_all(runs, cfg.jobs, progress)
    content: dict[str, Any] = {"trials": {name: {} for name in known}}
    rows: dict[str, Any] = {}
    replicates: dict[str, Any] = {}
    for name, about in known.items():
        results: dict[str, Results] = {}
        for method, of_method in wanted[name].items():
            measured, results[method] = measure(of_method, about.column)
            content["trials"][name][method] = measured
        if PLAIN in results:  # with its chosen setting
            own = {row: targets.plain(row_of(about, row).posthoc) for row in about.posthoc}
            after = {row: {"posthoc": {**posthoc, "of": PLAIN}} for row, posthoc in own.items()}
            add_rows(after, {PLAIN: []}, results, cfg.trust)
        for method, of_seeds in results.items():
            values = [metric(one, f"test/{about.column}") for one in of_seeds]
            rows.setdefault(method, {})[name] = tables.cell(values)
            for stored in mean_replicates(of_seeds, [about.column]).values():
                replicates.setdefault(method, {})[name] = stored
    columns = {name: {"title": name, **targets.plain(about.shown)} for name, about in known.items()}
    highlight = {"baseline": [PLAIN], "reweighted": [REWEIGHTED]}
    own = {method: method.split(" + ")[0] for method in rows}  # without the regulariser
    content["benchmark"] = {"columns": columns, "highlight": highlight, "own": own}
    content["ranks"] = ranks(rows, columns)
    order = sorted(rows, key=lambda method: content["ranks"]["mean"].get(method, math.inf))
    content["rows"] = {method: rows[method] for method in order}
    content["seeds"] = {method: [(0, seed) for seed in range(cfg.seeds)] for method in order}
    return {**content, **compared(content, replicates, content["benchmark"])}, replicates


def measure(of_method: Trials, column: str) -> tuple[list[dict[str, Any]], Results]:
    """Return the numbers of every setting, and the results of the one with the best mean over seeds
    on validation; a setting that diverged once is the worst."""
    done = [[result(one) or {} for one in seeds] for _, seeds in of_method]
    select = of_method[0][1][0].select
    keys = {"val": f"val/{select.metric}", "test": f"test/{column}"}
    measured, scores = [], []
    for (settings, _), of_seeds in zip(of_method, done, strict=True):
        values = {split: [metric(one, key) for one in of_seeds] for split, key in keys.items()}
        seconds = round(sum(one.get("seconds", 0) for one in of_seeds), 1)
        measured.append({"settings": settings, **values, "seconds": seconds, "chosen": False})
        scores.append(cost(tables.cell(values["val"]), select.mode == "min"))
    best = int(np.argmin(scores))
    measured[best]["chosen"] = True
    return measured, done[best]


def cost(cell: Mapping[str, Any], lower: bool) -> float:
    """Return a number that is small for good cells, and the largest if a run diverged."""
    return math.inf if cell["mean"] is None else cell["mean"] * (1 if lower else -1)


def trials(cfg: DictConfig, about: DictConfig, overrides: list[str]) -> dict[str, Trials]:
    """Return {method: its settings} of a benchmark."""
    overrides = [*about.overrides, *overrides]
    losses, terms = (
        [name for name in about[setting] if cfg[setting] is None or name in cfg[setting]]
        for setting in ("losses", "regularizers")
    )
    found: dict[str, Trials] = {}
    for loss, term in itertools.product(losses, [None, *terms]):
        row = row_of(about, about.losses[loss])
        own = [*(row.get("overrides") or []), *about.heads]
        ranges = {**about.search["all"], **about.search.get(loss, {})}
        if term is not None:
            own += [f"+regularizer={term}", *about.constants.get(term, [])]
        row = {"experiment": row["experiment"], "overrides": own}
        if term is not None:
            weight = configs(row, 1, overrides)[0].regularizer[term].weight
            ranges[f"regularizer.{term}.weight"] = [weight / cfg.weight, weight * cfg.weight]
        of_method = found[loss if term is None else f"{loss} + {term}"] = []
        for one in (sample(ranges, i) for i in range(cfg.settings)):
            changes = {"choose": None, **one}
            of_method.append((one, configs({**row, "changes": changes}, cfg.seeds, overrides)))
    return found


def row_of(about: DictConfig, row: Any) -> Any:
    """Return a row of the benchmark's table by its name; a description is returned as it is."""
    if not isinstance(row, str):
        return row
    return composed("table", [f"table={about.table}"]).table.rows[row]


def sample(ranges: Mapping[str, Sequence[float]], index: int) -> dict[str, float]:
    """Sample a value for each key, log-uniformly between low and high; index and key decide."""
    found = {}
    for key, (low, high) in ranges.items():
        share = np.random.default_rng([index, int(records.digest(key), 16)]).random()
        found[key] = float(f"{low * (high / low) ** share:.3g}")
    return found


def ranks(rows: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"mean": {method: mean rank}, the best first, "critical": the smallest significant
    difference} of the methods that every benchmark has; one that diverged has the last rank."""
    methods = [method for method, cells in rows.items() if cells.keys() == columns.keys()]
    found = [
        stats.rankdata([cost(rows[method][name], about["better"] == "lower") for method in methods])
        for name, about in columns.items()
    ]
    mean = dict(zip(methods, np.mean(found, 0).tolist(), strict=True))
    k, n = len(methods), len(columns)
    q = stats.studentized_range.ppf(LEVEL, k, np.inf) / math.sqrt(2) if k > 1 else 0.0
    return {
        "mean": {method: mean[method] for method in sorted(mean, key=lambda one: mean[one])},
        "critical": float(q * math.sqrt(k * (k + 1) / (6 * n))),
    }


def groups(mean: Sequence[float], critical: float) -> list[tuple[int, int]]:
    """Return (first, last) of the longest groups without significant differences; `mean` rises."""
    found: list[tuple[int, int]] = []
    for first, low in enumerate(mean):
        last = max(i for i, value in enumerate(mean) if value - low <= critical)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


@styled
def diagram(content: Mapping[str, Any]) -> Figure:
    """Plot the mean ranks; a line joins methods that do not differ significantly. Of one benchmark,
    plot the errors, with their standard deviations over seeds."""
    columns, ranks = content["benchmark"]["columns"], content["ranks"]
    if len(columns) == 1:
        ((key, about),) = columns.items()
        cells = {row: found[key] for row, found in content["rows"].items()}
        shown = {r: (c["mean"], c["std"]) for r, c in cells.items() if c["mean"] is not None}
        label = f"{about['title']} ({about['unit']})" if about.get("unit") else about["title"]
        title, lines = "mean and standard deviation over seeds", []
    else:
        shown = {row: (rank, 0.0) for row, rank in ranks["mean"].items()}
        label, lines = (
            "mean rank, 1 is the best",
            groups([*ranks["mean"].values()], ranks["critical"]),
        )
        title = f"critical difference {ranks['critical']:.1f}; lines join methods without one"
    figure = Figure((7, 0.9 + 0.22 * len(shown)))
    ax = figure.subplots()
    for y, (row, (x, spread)) in enumerate(shown.items()):
        shade = colour(row.split(" + ")[0])
        ax.errorbar(x, y, xerr=spread, fmt="o", color=shade, markersize=5)
    right = max(x for x, _ in shown.values()) * 1.04
    for i, (first, last) in enumerate(lines):
        x = right + 0.025 * i * len(shown)
        ax.plot([x, x], [first - 0.2, last + 0.2], color="#555555", linewidth=2.2)
    ax.set_yticks(range(len(shown)), list(shown))
    ax.set(ylim=(len(shown) - 0.4, -0.6), xlabel=label)
    ax.set_title(title, loc="left")
    ax.grid(axis="x", color="#EEEEEE")
    figure.tight_layout()
    return figure
