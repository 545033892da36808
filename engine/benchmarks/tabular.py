"""Many tables at once: boosted trees and small networks, plain, re-weighted and balanced, on every
fold of every set, and what their ranks say.

N: rows; M: methods; S: sets.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gaussian_kde, rankdata, skew, spearmanr, wilcoxon

from datasets.tabular import TabularSet, load
from engine.processes.pool import side_by_side
from engine.tables.plots import colour
from engine.tables.table import cell
from losses import BalancedRegressor, Gaussian, GaussianMixture, diagnose
from losses.boosting import objective
from losses.reweight import label_weights
from metrics.rare import rare_report

METRICS = {"bmae": "bMAE", "brmse": "bRMSE", "sera": "SERA", "rmse": "RMSE"}
PAIRS = {"Balanced (trees)": "L2 (trees)", "Balanced (network)": "L2 (network)"}


@dataclass(frozen=True)
class Settings:
    """The numbers of configs/tabular.yaml."""

    folds: int
    rounds: int
    leaves: int
    learning_rate: float
    components: int
    sigmas: tuple[float, ...]
    ranges: int
    hidden: tuple[int, ...]
    iterations: int


Fit = Callable[[NDArray, NDArray], NDArray]  # training inputs and labels -> predictions


def predictions(
    x: NDArray, y: NDArray, test: NDArray, seed: int, s: Settings
) -> tuple[dict[str, NDArray], NDArray]:
    """{method: predictions of the test inputs}, and residuals of the plain trees on held-out rows.

    Labels are standardised, so that a sigma means the same in every set.
    """
    center, scale = y.mean(), y.std()
    z = (y - center) / scale
    trees = partial(_trees, seed=seed, s=s)
    inner, outer = _holdout(z, seed)
    residual = z[outer] - trees(x[inner], z[inner], x[outer])
    error = float(np.sqrt(np.mean(residual**2)))
    tried = [max(factor * error, 1e-2) for factor in s.sigmas]
    scores = [
        rare_report(
            trees(x[inner], z[inner], x[outer], objective=_balanced(z[inner], sigma, s)),
            z[outer],
            z,
        )["bmae"]
        for sigma in tried
    ]
    chosen = _balanced(z, tried[int(np.argmin(scores))], s)
    edges = np.linspace(z.min(), z.max(), s.ranges + 1)
    network = partial(BalancedRegressor, hidden=s.hidden, max_iter=s.iterations, random_state=seed)
    found = {
        "L2 (trees)": trees(x, z, test),
        "Inverse (trees)": trees(x, z, test, weight=label_weights(z, edges, clip=(1, len(z)))),
        "DenseWeight (trees)": trees(x, z, test, weight=dense_weights(z)),
        "Balanced (trees)": trees(x, z, test, objective=chosen),
        "L2 (network)": network(prior="flat", sigma=1.0, power=1.0).fit(x, z).predict(test),
        "Balanced (network)": network().fit(x, z).predict(test),
    }
    return {name: pred * scale + center for name, pred in found.items()}, residual * scale


def _trees(
    x: NDArray,
    y: NDArray,
    test: NDArray,
    seed: int,
    s: Settings,
    weight: NDArray | None = None,
    **options: Any,
) -> NDArray:
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(
        n_estimators=s.rounds,
        num_leaves=s.leaves,
        learning_rate=s.learning_rate,
        min_child_samples=5,
        random_state=seed,
        n_jobs=1,
        verbose=-1,
        **options,
    )
    return np.asarray(model.fit(x, y, sample_weight=weight).predict(test))


def _balanced(z: NDArray, sigma: float, s: Settings) -> Any:
    components = min(s.components, len(np.unique(z)))
    with warnings.catch_warnings():  # a mixture that stops early is a prior all the same
        warnings.simplefilter("ignore")
        prior = GaussianMixture.fit(z, components, regularisation=1e-3)
    return objective(Gaussian(sigma), prior, learning_rate=s.learning_rate)


def dense_weights(labels: NDArray, alpha: float = 1.0, least: float = 1e-6) -> NDArray:
    """DenseWeight (Steininger et al., 2021): max(1 - alpha p'(y), least), with p' a kernel density
    of the labels scaled to [0, 1]; their mean is one.
    """
    density = gaussian_kde(labels, "silverman")(labels)
    density = (density - density.min()) / max(np.ptp(density), 1e-300)
    weights = np.maximum(1 - alpha * density, least)
    return weights / weights.mean()


def _holdout(labels: NDArray, seed: int) -> tuple[NDArray, NDArray]:
    """Rows to train on and a fifth to look at, along the sorted labels."""
    fold = stratified_folds(labels, 5, seed)
    return np.flatnonzero(fold != 0), np.flatnonzero(fold == 0)


def stratified_folds(labels: NDArray, folds: int, seed: int) -> NDArray[np.int64]:
    """(N,) a fold each: of every `folds` neighbours in the sorted labels one goes to each."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(labels), np.int64)
    order = np.lexsort((rng.random(len(labels)), labels))
    for start in range(0, len(order), folds):
        part = order[start : start + folds]
        fold[part] = rng.permutation(folds)[: len(part)]
    return fold


def run_set(
    path: Path, target: str | None, rows: int | None, s: Settings, say: Callable
) -> dict[str, Any]:
    """{method: {metric: a value per fold}} of one set, errors in standard deviations of its labels
    (SERA in variances), and what `diagnose` said of its training labels.
    """
    data = load(path, target, rows)
    fold = stratified_folds(data.labels, s.folds, seed=0)
    errors: dict[str, dict[str, list[float]]] = {}
    advice = []
    for k in range(s.folds):
        train, test = fold != k, fold == k
        x, y = data.inputs[train], data.labels[train]
        if not np.ptp(y):
            raise ValueError(f"{path}: but for one fold all labels are {y[0]:g}; too few others")
        found, residual = predictions(x, y, data.inputs[test], seed=k, s=s)
        for method, pred in found.items():
            report = rare_report(pred, data.labels[test], data.labels)
            units = {"sera": data.labels.std() ** 2}
            for metric in METRICS:
                value = report[metric] / units.get(metric, data.labels.std())
                errors.setdefault(method, {}).setdefault(metric, []).append(value)
        if k == 0 and len(y) >= 30:
            advice = [_foreseen(y, residual)]
        say(f"{data.name}: fold {k + 1}")
    return {"errors": errors, **_about(data), **(advice[0] if advice else {})}


def _about(data: TabularSet) -> dict[str, float]:
    return {
        "rows": len(data.labels),
        "inputs": data.inputs.shape[1],
        "skewness": float(skew(data.labels)),
    }


def _foreseen(labels: NDArray, residual: NDArray) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = diagnose(labels, residual)
    gain = 1 - found.balanced_rmse[1] / found.balanced_rmse[0]
    return {"imbalance": found.imbalance, "stretch": found.stretch, "foreseen_gain": gain}


def run_all(
    paths: Sequence[Path],
    targets: Mapping[str, str],
    rows: int | None,
    s: Settings,
    workers: int,
    say: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """{set: what `run_set` found}; the largest files first, so that no worker is left alone."""
    ordered = sorted(paths, key=lambda path: -path.stat().st_size)
    tasks = [partial(run_set, path, targets.get(path.stem), rows, s) for path in ordered]
    results = side_by_side(tasks, workers, lambda i, what: say(what or f"{ordered[i].stem}: done"))
    found = {path.stem: result for path, result in zip(ordered, results, strict=True)}
    return {name: found[name] for name in sorted(found)}


def summary(sets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The table: mean errors and mean ranks over the sets, one value per fold in each cell; and
    the tests of balanced against plain.
    """
    methods = list(next(iter(sets.values()))["errors"])
    values = {
        metric: np.array([[s["errors"][m][metric] for m in methods] for s in sets.values()])
        for metric in METRICS
    }  # (S, M, folds)
    rows: dict[str, dict[str, Any]] = {method: {} for method in methods}
    for metric, title in METRICS.items():
        ranks = rankdata(values[metric], axis=1)
        for i, method in enumerate(methods):
            rows[method][title] = cell(values[metric][:, i].mean(0).tolist())
            rows[method][f"rank by {title}"] = cell(ranks[:, i].mean(0).tolist())
    tests = {}
    for ours, plain in PAIRS.items():
        for metric, title in METRICS.items():
            a, b = (values[metric][:, methods.index(name)].mean(1) for name in (ours, plain))
            tests[f"{ours} against {plain}, {title}"] = {
                "wins": int((a < b).sum()),
                "losses": int((a > b).sum()),
                "p": float(wilcoxon(a, b).pvalue) if (a != b).any() else None,  # pyright: ignore
                "median_gain": float(np.median(1 - a / b)),
            }
    return {"rows": rows, "tests": tests, "foresight": foresight(sets)}


def gains(sets: Mapping[str, Mapping[str, Any]], ours: str) -> NDArray[np.float64]:
    """(S,) by how much balancing lowers the bRMSE, as a share of the plain one's."""
    return np.array(
        [
            1 - np.mean(s["errors"][ours]["brmse"]) / np.mean(s["errors"][PAIRS[ours]]["brmse"])
            for s in sets.values()
        ]
    )


def foresight(sets: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Rank correlations of the gain with what is known before balancing."""
    known = {name: s for name, s in sets.items() if "foreseen_gain" in s}
    out: dict[str, dict[str, float | None]] = {}
    for ours in PAIRS:
        gain = gains(known, ours)
        for name in ("skewness", "imbalance", "stretch", "foreseen_gain"):
            values = [abs(s[name]) if name == "skewness" else s[name] for s in known.values()]
            found = out.setdefault(ours, {})
            found[name], found[f"{name}_p"] = _rank_correlation(values, gain)
    return out


def _rank_correlation(a: ArrayLike, b: ArrayLike) -> tuple[float | None, float | None]:
    """Spearman's and its p-value; None where there is none, of two sets or of constants."""
    if np.size(a) < 3 or not np.ptp(a) or not np.ptp(b):
        return None, None
    result: Any = spearmanr(a, b)
    return float(result.statistic), float(result.pvalue)


def figures(sets: Mapping[str, Mapping[str, Any]]) -> dict[str, Figure]:
    """Gain against the labels' skewness, and against what `diagnose` foresaw."""
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    known = {name: s for name, s in sets.items() if "foreseen_gain" in s}
    colours = {"Balanced (trees)": colour("GAI"), "Balanced (network)": colour("BNI")}
    for name, shade in colours.items():
        gain = 100 * gains(known, name)
        skewness = [abs(s["skewness"]) for s in known.values()]
        foreseen = [100 * s["foreseen_gain"] for s in known.values()]
        axes[0].scatter(skewness, gain, s=12, color=shade, label=name, alpha=0.8)
        axes[1].scatter(foreseen, gain, s=12, color=shade, alpha=0.8)
    for ax in axes:
        ax.axhline(0, color="#999999", linewidth=0.8)
        ax.margins(0.08)
    axes[0].set_xscale("symlog")
    axes[0].set_xticks(ticks := [0, 0.5, 1, 2, 5, 10, 20], [f"{tick:g}" for tick in ticks])
    axes[0].set(xlabel="|skewness| of the labels", ylabel="gain in bRMSE [%]")
    axes[0].set_xlim(-0.1, 1.2 * max(abs(s["skewness"]) for s in known.values()))
    axes[1].set(xlabel="gain that diagnose foresees [%]")
    axes[0].legend(fontsize=7)
    return {"gain": figure}
