"""LightGBM and XGBoost on 60 random label distributions: does the true balanced training loss ever
rise, and how far do predictions leave the labels?

    python -m tests.losses.boosting.boosters
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import lightgbm
import numpy as np
import torch
import xgboost
from numpy.typing import NDArray

from losses import BalancedLoss, Bins, Gaussian, GaussianMixture, Huber, Laplace
from losses.boosting import objective
from losses.structured import Product

KINDS = ("clusters", "gap", "lognormal", "bins", "whole", "outputs")
ETAS = {"lightgbm": 0.1, "xgboost": 0.3}  # the libraries' defaults


@dataclass
class Case:
    name: str
    x: NDArray
    y: NDArray
    likelihood: Any
    prior: Any


def case(index: int, count: int = 400) -> Case:
    """Labels, a likelihood and a prior; the kind is KINDS[index % 6]."""
    rng, kind = np.random.default_rng(index), KINDS[index % len(KINDS)]
    x = rng.normal(size=(count, 4))
    signal = x[:, 0] + 0.5 * x[:, 1] * (x[:, 2] > 0) + rng.uniform(0.1, 1) * rng.normal(size=count)
    edges = None
    if kind == "clusters":
        centers = np.sort(rng.uniform(0, 10 ** rng.uniform(1, 3), size=rng.integers(2, 5)))
        rank = np.argsort(np.argsort(signal)) / count
        y = centers[(rank * len(centers)).astype(int)] + rng.uniform(0.1, 3) * rng.normal(
            size=count
        )
    elif kind == "gap":
        y = np.where(signal > rng.uniform(0, 2), rng.uniform(5, 300), 0) + signal
    elif kind == "lognormal":
        y = np.exp(rng.uniform(0.5, 2.5) * signal)
    elif kind == "bins":  # few bins of unequal width, as in the issue
        y = 100 * (np.argsort(np.argsort(signal)) / count) ** 3
        edges = np.sort(np.append(rng.uniform(1, 99, size=rng.integers(2, 6)), [0, 101]))
    elif kind == "whole":
        y = np.round(30 + rng.uniform(3, 15) * signal)
    else:
        y = np.exp(0.7 * signal)[:, None] * rng.uniform(-1, 1, rng.integers(2, 9))
        y += 0.3 * y.std() * rng.normal(size=y.shape) + rng.uniform(-100, 100)
    sigma = float(y.std(0).mean() * 10 ** rng.uniform(-2, 0))
    if kind == "outputs":
        prior = GaussianMixture.fit(y, int(rng.integers(1, 6)))
        if rng.uniform() < 0.3:
            prior = Product([GaussianMixture.fit(column, 3) for column in y.T])
        likelihood = Gaussian(torch.tensor(sigma))
    else:
        likelihood = (Gaussian, Gaussian, Laplace, Huber)[rng.integers(4)](torch.tensor(sigma))
        if edges is None:
            edges = np.linspace(y.min(), y.max(), rng.integers(5, 200))
        prior = Bins.fit(y, edges)
        if rng.uniform() < 0.4 and not isinstance(likelihood, Huber):
            prior = GaussianMixture.fit(y, int(rng.integers(1, 6)))
    name = f"{index} {kind} {type(likelihood).__name__}({sigma:.3g}) {type(prior).__name__}"
    return Case(name, x, y, likelihood, prior)


@dataclass
class Result:
    rise: float  # largest rise of the loss in one round, relative to its whole range
    fall: float  # of the loss, from the mean to the last round
    excess: float  # distance of predictions to the range of the labels, in units of that range


def train(case: Case, library: str, rounds: int = 60) -> Result:
    f = objective(case.likelihood, case.prior, learning_rate=ETAS[library])
    seen = []

    def watched(labels: Any, pred: Any) -> Any:
        seen.append(np.array(pred, dtype=np.float64).reshape(len(pred), -1))
        return f(labels, pred)

    if library == "lightgbm":
        model = lightgbm.LGBMRegressor(
            objective=watched, n_estimators=rounds, n_jobs=1, verbose=-1, reg_lambda=0.0
        )
    else:
        model = xgboost.XGBRegressor(
            objective=watched,
            n_estimators=rounds,
            base_score=float(case.y.mean()),
            n_jobs=1,
            max_depth=5,
        )
    pred = np.asarray(model.fit(case.x, case.y).predict(case.x), dtype=np.float64)
    seen.append(pred.reshape(len(pred), -1))
    y = torch.tensor(case.y, dtype=torch.float64).reshape(len(case.y), -1)
    loss = BalancedLoss(case.likelihood, case.prior).double()
    with torch.no_grad():
        values = [float(loss.rows(torch.tensor(p), y).mean()) for p in seen[1:]]
    low, high = y.numpy().min(0), y.numpy().max(0)
    out = np.maximum(pred.reshape(y.shape) - high, low - pred.reshape(y.shape)) / (high - low)
    whole = max(values) - min(values) + 1e-12
    rise = max(b - a for a, b in pairwise(values)) / (whole + abs(values[0]))
    return Result(rise, values[0] - values[-1], float(out.max()))


def main(count: int = 60, rounds: int = 60) -> None:
    results = {}
    for index in range(count):
        given = case(index)
        for library in ETAS:
            if given.y.ndim == 1 or library == "xgboost":
                found = results[f"{library} {given.name}"] = train(given, library, rounds)
                print(f"{library} {given.name}: {found}", flush=True)
    for key in ("rise", "excess"):
        name = max(results, key=lambda name: getattr(results[name], key))
        print(f"largest {key} of {len(results)} trainings: {results[name]} ({name})")
    print(f"{sum(r.rise > 1e-5 for r in results.values())} of {len(results)} rise")


if __name__ == "__main__":
    main()
