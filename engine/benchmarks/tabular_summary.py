"""Summary of the comparison on tables: mean errors and ranks, tests, and what was foreseen.

M: methods; S: sets.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import rankdata, spearmanr, wilcoxon

from engine.benchmarks.tabular import METRICS
from engine.tables.plots import colour
from engine.tables.table import cell, markdown

PAIRS = {"Balanced (trees)": "L2 (trees)", "Balanced (network)": "L2 (network)"}
POSTHOC = "L2 + post-hoc (trees)"
OTHERS = ("L2 (trees)", "Inverse (trees)", "Balanced (trees)", "L2 + isotonic (trees)")
TESTS = (*PAIRS.items(), *((POSTHOC, other) for other in OTHERS))  # (ours, compared with)
PREDICTORS = {  # known before balancing
    "skewness": "skewness of the labels",
    "imbalance": "imbalance",
    "stretch": "stretch",
    "foreseen_gain": "gain predicted by `diagnose`",
}
LARGE = 0.05  # a predicted gain whose sign should be right

Sets = Mapping[str, Mapping[str, Any]]  # {set: result of run_set}


def summary(sets: Sets) -> dict[str, Any]:
    """Return mean errors and mean ranks over the sets, with one value per fold in each cell, and
    Wilcoxon tests of each pair in TESTS."""
    methods = list(next(iter(sets.values()))["errors"])
    rows: dict[str, dict[str, Any]] = {method: {} for method in methods}
    tests: list[dict[str, Any]] = []
    for metric, title in METRICS.items():
        values = np.array([[s["errors"][m][metric] for m in methods] for s in sets.values()])
        ranks = rankdata(values, axis=1)  # (S, M, folds)
        for i, method in enumerate(methods):
            rows[method][title] = cell(values[:, i].mean(0).tolist())
            rows[method][f"rank by {title}"] = cell(ranks[:, i].mean(0).tolist())
        means = dict(zip(methods, values.mean(2).T, strict=True))  # {method: (S,)}
        for ours, other in TESTS:
            a, b = means[ours], means[other]
            found: Any = wilcoxon(a, b) if (a != b).any() else None
            tests.append(
                {
                    "ours": ours,
                    "other": other,
                    "metric": title,
                    "wins": int((a < b).sum()),
                    "sets": len(a),
                    "median_gain": float(np.median(1 - a / b)),
                    "largest_loss": float((a / b - 1).max()),
                    "p": None if found is None else float(found.pvalue),
                }
            )
    tests.sort(key=lambda test: TESTS.index((test["ours"], test["other"])))
    return {"rows": rows, "tests": tests, "foresight": foresight(gains(sets))}


def gains(sets: Sets) -> pd.DataFrame:
    """Return the predictors and the relative reduction of bRMSE by balancing, for each set with a
    diagnosis."""
    rows = {}
    for name, found in sets.items():
        if "foreseen_gain" in found:
            brmse = {method: np.mean(of["brmse"]) for method, of in found["errors"].items()}
            known = {key: found[key] for key in PREDICTORS} | {"skewness": abs(found["skewness"])}
            rows[name] = known | {
                ours: 1 - brmse[ours] / brmse[plain] for ours, plain in PAIRS.items()
            }
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*PREDICTORS, *PAIRS])


def foresight(gains: Any) -> dict[str, dict[str, Any]]:
    """Return the Spearman correlation of the gain with each predictor and its p-value, None for
    fewer than three sets or constant values; and [sets, signs that are right] of the sets with a
    large predicted gain or loss."""
    out: dict[str, dict[str, Any]] = {ours: {} for ours in PAIRS}
    for (ours, found), name in product(out.items(), PREDICTORS):
        enough = len(gains) >= 3 and gains[name].nunique() > 1 and gains[ours].nunique() > 1
        result: Any = spearmanr(gains[name], gains[ours]) if enough else (None, None)
        found[name], found[f"{name}_p"] = (None if r is None else float(r) for r in result)
    for ours, found in out.items():
        for sign, name in ((1, "large_gain"), (-1, "large_loss")):
            large = gains[sign * gains["foreseen_gain"] > LARGE]
            found[name] = [len(large), int((sign * large[ours] > 0).sum())]
    return out


def shown(value: float | None, digits: str) -> str:
    return "-" if value is None else f"{value:{digits}}"


def pages(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of docs/tabular.md: {name: Markdown}."""
    head = ["Method", "Compared with", "Metric", "Lower", "Median gain", "Largest loss", "p"]
    tests = [
        [
            *(test[key] for key in ("ours", "other", "metric")),
            f"{test['wins']} of {test['sets']}",
            *(f"{test[key]:.1%}" for key in ("median_gain", "largest_loss")),
            shown(test["p"], ".1g"),
        ]
        for test in content["tests"]
    ]
    found = content["foresight"]
    lines = [["Gain in bRMSE", *PAIRS]]
    for key, title in PREDICTORS.items():
        cells = [(shown(of[key], ".2f"), shown(of[f"{key}_p"], ".1g")) for of in found.values()]
        lines.append([f"rank correlation with {title}", *(f"{r}, p = {p}" for r, p in cells)])
    for key, title in (("large_gain", f"> {LARGE:.0%}"), ("large_loss", f"< -{LARGE:.0%}")):
        cells = ["{1} of {0} sets".format(*of[key]) for of in found.values()]
        lines.append([f"right sign of a predicted gain {title}", *cells])
    return {"tabular_tests": markdown([head, *tests]), "tabular_foresight": markdown(lines)}


def figures(sets: Sets) -> dict[str, Figure]:
    """Plot the gain against the skewness of the labels and the gain that `diagnose` predicts."""
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    found: Any = gains(sets)
    for name, shade in zip(PAIRS, (colour("GAI"), colour("BNI")), strict=True):
        for ax, x in ((left, found["skewness"]), (right, 100 * found["foreseen_gain"])):
            ax.scatter(x, 100 * found[name], s=12, color=shade, label=name, alpha=0.8)
    for ax in (left, right):
        ax.axhline(0, color="#999999", linewidth=0.8)
        ax.margins(0.08)
    left.set_xscale("symlog")
    left.set_xticks(ticks := [0, 0.5, 1, 2, 5, 10, 20], [f"{tick:g}" for tick in ticks])
    left.set(xlabel="|skewness| of the labels", ylabel="gain in bRMSE [%]")
    left.set_xlim(-0.1, 1.2 * found["skewness"].max())
    left.legend(fontsize=7)
    right.set(xlabel="gain predicted by diagnose [%]")
    return {"gain": figure}
