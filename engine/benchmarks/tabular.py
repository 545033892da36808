"""Boosted trees and small networks, plain, re-weighted and balanced, on many tables.

N: samples; M: methods; S: sets. `cfg` is configs/tabular.yaml.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig
from scipy.stats import gaussian_kde, skew

from datasets.tabular import load, stratified_folds
from engine.processes.pool import side_by_side
from losses import BalancedRegressor, Gaussian, GaussianMixture, Rebalancer, diagnose
from losses.boosting import objective
from losses.diagnosis.leverage import FEWEST, leverage
from losses.reweight import label_weights
from metrics import balanced_report

METRICS = {"bmae": "bMAE", "brmse": "bRMSE", "sera": "SERA", "rmse": "RMSE"}


def run_all(
    paths: Sequence[Path], cfg: DictConfig, workers: int, log: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """{set: result of `run_set`}; the largest files start first, so that workers end together."""
    ordered = sorted(paths, key=lambda path: -path.stat().st_size)
    tasks = [partial(run_set, path, cfg) for path in ordered]
    results = side_by_side(tasks, workers, lambda i, done: log(done or f"{ordered[i].stem}: done"))
    found = {path.stem: result for path, result in zip(ordered, results, strict=True)}
    return {name: found[name] for name in sorted(found)}


def run_set(path: Path, cfg: DictConfig, log: Callable[[str], None]) -> dict[str, Any]:
    """{"errors": {method: {metric: a value per fold}}} of one set, with properties of its labels.

    Errors are in standard deviations of the labels, SERA in variances.
    """
    inputs, labels = load(path, cfg.targets.get(path.stem), cfg.rows)
    fold, spread = stratified_folds(labels, cfg.folds, seed=0), labels.std()
    errors: dict[str, dict[str, list[float]]] = {}
    about: dict[str, Any] = {
        "rows": len(labels),
        "inputs": inputs.shape[1],
        "skewness": float(skew(labels)),
    }
    for k in range(cfg.folds):
        train, test = fold != k, fold == k
        x, y = inputs[train], labels[train]
        if not np.ptp(y):
            raise ValueError(f"{path}: all labels outside of one fold are {y[0]:g}.")
        found, held = predictions(x, y, inputs[test], seed=k, cfg=cfg)
        for method, pred in found.items():
            report = balanced_report(pred, labels[test], labels)
            for metric in METRICS:
                value = report[metric] / (spread**2 if metric == "sera" else spread)
                errors.setdefault(method, {}).setdefault(metric, []).append(value)
        if k == 0 and len(y) >= 30:
            with warnings.catch_warnings(action="ignore"):
                diagnosis = diagnose(y, held[1] - held[0])
                if len(held[0]) >= FEWEST:
                    about["leverage"] = asdict(leverage(y, *held))
            plain, balanced = diagnosis.balanced_rmse
            about |= {"imbalance": diagnosis.imbalance, "stretch": diagnosis.stretch}
            about["foreseen_gain"] = 1 - balanced / plain
        log(f"{path.stem}: fold {k + 1}")
    return {"errors": errors, **about}


def predictions(
    x: NDArray, y: NDArray, test: NDArray, seed: int, cfg: DictConfig
) -> tuple[dict[str, NDArray], tuple[NDArray, NDArray]]:
    """{method: predictions of the test inputs}; predictions of the plain trees on a held-out fifth
    of the training data, and their labels.

    Labels are standardised, so that a sigma means the same in every set. The sigma of the balanced
    trees is chosen by bMAE on the held-out fifth.
    """
    center, scale = y.mean(), y.std()
    z = (y - center) / scale
    trees = partial(_trees, seed=seed, cfg=cfg)
    held_out = stratified_folds(z, 5, seed) == 0
    inner = x[~held_out], z[~held_out], x[held_out]
    residual = z[held_out] - trees(*inner)
    error = float(np.sqrt(np.mean(residual**2)))

    def bmae(sigma: float) -> float:
        pred = trees(*inner, objective=_balanced(inner[1], sigma, cfg))
        return balanced_report(pred, z[held_out], z)["bmae"]

    sigma = min((max(factor * error, 1e-2) for factor in cfg.balanced.sigmas), key=bmae)
    edges = np.linspace(z.min(), z.max(), cfg.ranges + 1)
    network = partial(
        BalancedRegressor,
        hidden=tuple(cfg.network.hidden),
        max_iter=cfg.network.iterations,
        random_state=seed,
    )
    plain, held = trees(x, z, test), (z[held_out] - residual, z[held_out])
    with warnings.catch_warnings(action="ignore"):  # few held-out samples; few iterations
        others = {
            "L2 + post-hoc (trees)": Rebalancer(z, criterion="bmae").fit(*held)(plain),
            "L2 + isotonic (trees)": Rebalancer(z, method="isotonic").fit(*held)(plain),
            "L2 (network)": network(prior="flat", sigma=1.0, power=1.0).fit(x, z).predict(test),
            "Balanced (network)": network().fit(x, z).predict(test),
        }
    found = {
        "L2 (trees)": plain,
        "Inverse (trees)": trees(x, z, test, weight=label_weights(z, edges, clip=(1, len(z)))),
        "DenseWeight (trees)": trees(x, z, test, weight=dense_weights(z)),
        "Balanced (trees)": trees(x, z, test, objective=_balanced(z, sigma, cfg)),
        **others,
    }
    pred, target = (values * scale + center for values in held)
    return {name: each * scale + center for name, each in found.items()}, (pred, target)


def _trees(
    x: NDArray, y: NDArray, test: NDArray, seed: int, cfg: DictConfig, weight: Any = None, **options
) -> NDArray:
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(
        n_estimators=cfg.trees.rounds,
        num_leaves=cfg.trees.leaves,
        learning_rate=cfg.trees.learning_rate,
        min_child_samples=5,
        random_state=seed,
        n_jobs=1,
        verbose=-1,
        **options,
    )
    return np.asarray(model.fit(x, y, sample_weight=weight).predict(test))


def _balanced(z: NDArray, sigma: float, cfg: DictConfig) -> Any:
    components = min(cfg.balanced.components, len(np.unique(z)))
    with warnings.catch_warnings(action="ignore"):  # an unconverged mixture is still a valid prior
        prior = GaussianMixture.fit(z, components, regularisation=1e-3)
    return objective(Gaussian(sigma), prior, learning_rate=cfg.trees.learning_rate)


def dense_weights(labels: NDArray) -> NDArray:
    """DenseWeight (Steininger et al., 2021) with alpha 1: max(1 - p'(y), 1e-6), with p' a kernel
    density of the labels scaled to [0, 1]; normalised to mean one."""
    density = gaussian_kde(labels, "silverman")(labels)
    density = (density - density.min()) / max(np.ptp(density), 1e-300)
    weights = np.maximum(1 - density, 1e-6)
    return weights / weights.mean()
