"""Each pair against a slow rewrite: loops over rows and labels in NumPy and SciPy."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.distributions import MultivariateNormal

from losses import (
    BalancedLoss,
    Gaussian,
    GaussianMixture,
    Huber,
    WeightedLoss,
)
from tests.losses.pairs import CLASSES, D64, EDGES, PAIRS, batch, make

# float64 on both sides; 1e-9 leaves room for the cancellation in |p|^2 + |y|^2 - 2 p.y
CLOSE = {"rel": 1e-9, "abs": 1e-9}


@cache
def huber_area(delta: float) -> float:
    grid = np.linspace(-300, 300, 1_000_001)
    return float(np.trapezoid(np.exp(-special.huber(delta, grid)), grid))


def log_density(name: str, y: np.ndarray, pred: np.ndarray, scale: np.ndarray) -> float:
    """log p(y | pred) of one label, from SciPy's densities (Huber: its own normaliser by
    quadrature)."""
    if name == "Gaussian":
        return float(stats.norm.logpdf(y, pred, scale).sum())
    if name == "Laplace":
        return float(stats.laplace.logpdf(y, pred, scale).sum())
    if name == "Huber":
        z = np.abs((y - pred) / scale)
        return float((-special.huber(1.3, z) - np.log(huber_area(1.3) * scale)).sum())
    if name == "Categorical":
        return float(special.log_softmax(pred)[int(y[0])])
    edges = EDGES.numpy()
    logs = special.log_softmax(pred)
    if name == "HardHistogram":
        return float(logs[min(max(np.searchsorted(edges, y[0], "right") - 1, 0), 7)])
    mass = np.diff(stats.norm.cdf(edges, y[0], 0.5))
    return float((mass / mass.sum()) @ logs)


def label_range(over: str, loss: BalancedLoss, target: np.ndarray) -> tuple:
    if over == "Mixture":
        mean, s = loss.prior.means[:, 0].numpy(), loss.prior.covariances[:, 0, 0].sqrt().numpy()
        return (mean - 3 * s).min(), (mean + 3 * s).max()
    atoms = loss.prior.centers.numpy()[:, None] if over == "Bins" else target
    return (atoms.min(0), atoms.max(0)) if over != "Flat" else (-np.inf, np.inf)


def oracle_rows(pair: str, loss: BalancedLoss, pred: np.ndarray, target: np.ndarray) -> list[float]:
    name, over, dims = pair.split()
    per_dim = name.endswith("*")
    name, d = name.rstrip("*"), int(dims)
    scale = np.linspace(0.6, 1.1, d) if per_dim else np.full(d, 0.8)
    rows, own = [], name.startswith("Own")  # a scale of each row's own
    name, middle = name.removeprefix("Own"), scale
    for p, y in zip(pred, target, strict=True):
        if own:
            p, scale = p[:d], middle * 4.0 ** np.tanh(p[d:])
        nll = -log_density(name, y, p, scale)
        if name in ("Laplace", "Huber"):  # beyond the outermost labels the evidence is constant
            p = np.clip(p, *label_range(over, loss, target))
        if over == "Flat":  # zero where the prediction is the label and the scale the middle one
            known = name in ("Gaussian", "Laplace", "Huber")
            best = log_density(name, p, p, middle) if known else 0
            rows.append(nll + best)
        elif over == "Mixture":
            prior = loss.prior
            parts = []
            for w, mu, cov in zip(prior.weights, prior.means, prior.covariances, strict=True):
                if name == "Gaussian":
                    total = cov + torch.diag(torch.from_numpy(scale**2))
                    normal = MultivariateNormal(mu, total)
                    parts.append((w.log() + normal.log_prob(torch.from_numpy(p))).item())
                else:  # the normal-Laplace convolution on a fine grid
                    t = np.linspace(-40, 40, 100_001)
                    f = stats.laplace.pdf(t, p[0], 0.8) * stats.norm.pdf(t, mu[0], cov[0, 0] ** 0.5)
                    parts.append(math.log(w * np.trapezoid(f, t)))
            rows.append(nll + special.logsumexp(parts))
        elif over in ("Batch", "Bins"):
            atoms = target if over == "Batch" else loss.prior.centers.numpy()[:, None]
            weights = np.ones(len(atoms)) if over == "Batch" else loss.prior.weights.numpy()
            hard = "HardHistogram" if "Histogram" in name else name  # an atom counts for its bin
            if name == "Histogram":  # soft: empty bins are as frequent as the rarest one
                counts, edges = np.histogram(atoms, EDGES.numpy(), weights=weights[:, None])
                atoms = (edges[1:, None] + edges[:-1, None]) / 2
                weights = np.where(counts > 0, counts, counts[counts > 0].min())
            logs = [log_density(hard, a, p, scale) for a in atoms]
            rows.append(nll + special.logsumexp(logs, b=weights))
        else:
            w = np.arange(1, 1 + CLASSES) / np.arange(1, 1 + CLASSES).sum()
            evidence = special.logsumexp(special.log_softmax(p), b=w)
            rows.append(nll + evidence - math.log(w[int(y[0])]))
    return rows


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_pairs(pair, weighted):
    loss = make(pair)
    pred, target = batch(pair, 6)
    weight = torch.linspace(0.1, 2, 6, dtype=D64) if weighted else None
    rows = oracle_rows(pair, loss, pred.numpy(), target.numpy())
    scale = np.linspace(0.6, 1.1, 3) if "*" in pair else np.array([0.8])
    name = pair.split()[0].rstrip("*").removeprefix("Own")
    units = {"Gaussian": 2 * (scale**2).mean(), "Laplace": scale.mean(), "Huber": (scale**2).mean()}
    expected = units.get(name, 1.0) * np.average(rows, weights=weight)
    # 1e-8 where the oracle integrates by trapezoid: step^2 of its kinks
    integrated = name == "Huber" or pair == "Laplace Mixture 1"
    assert loss(pred, target, weight).item() == pytest.approx(
        expected, **(CLOSE if not integrated else {"rel": 1e-7, "abs": 1e-7})
    )


ERRORS = {
    "mse": lambda r: r**2,
    "l1": abs,
    "huber": lambda r: r**2 / 2 if abs(r) < 1.5 else 1.5 * (abs(r) - 0.75),
    "focal_mse": lambda r: r**2 * math.tanh(0.3 * abs(r) / 2) ** 2,
    "focal_l1": lambda r: abs(r) * math.tanh(0.3 * abs(r) / 2) ** 2,
}


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("error", ERRORS)
def test_weighted_baselines(error, normalise):
    """2 sigmoid(x) - 1 is tanh(x / 2)."""
    loss = WeightedLoss(error, normalise, delta=1.5, beta=0.3, gamma=2)
    pred, target = batch("Gaussian Flat 3", 8)
    weight = torch.linspace(0.2, 3, 8, dtype=D64)
    rows = [sum(ERRORS[error](r) for r in row) for row in (pred - target).tolist()]
    total = sum(w * row for w, row in zip(weight.tolist(), rows, strict=True))
    expected = total / (weight.sum().item() if normalise else 8)
    assert loss(pred, target, weight).item() == pytest.approx(expected, **CLOSE)
    assert loss(pred, target).item() == pytest.approx(sum(rows) / 8, **CLOSE)


@pytest.mark.parametrize("delta", [0.2, 1.0, 4.0])
def test_huber_normaliser(delta):
    # 1e-7: the trapezoid's step is 6e-4; a tail beyond 300 holds e^-60 at delta 0.2
    assert Huber(1.0, delta).log_z == pytest.approx(math.log(huber_area(delta)), abs=1e-7)


def test_integer_weights_make_a_float32_mixture_that_serves_float64():
    prior = GaussianMixture([1, 3], [[0], [2]], [[[4]], [[1]]])
    assert prior.weights.dtype == torch.float32
    pred = torch.tensor([[0.3]], dtype=D64)
    parts = [0.25 * stats.norm.pdf(0.3, 0, 5**0.5), 0.75 * stats.norm.pdf(0.3, 2, 2**0.5)]
    expected = 2 * (-stats.norm.logpdf(1.0) + math.log(sum(parts)))
    value = BalancedLoss(Gaussian(1.0), prior)(pred, pred + 1)
    assert value.dtype == D64
    assert value.item() == pytest.approx(expected, rel=1e-6)  # the eigenvalues are float32
