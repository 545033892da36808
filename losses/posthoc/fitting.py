"""Choices on held-out predictions: sigma, the isotonic curve, and the share of each in a blend.

Sigma by maximum likelihood: with m = T^-1(plain prediction), the held-out labels have density

    p(y | x) = p_bal(y | m) p(y) / E_{y' ~ p}[ p_bal(y' | m) ],    p: the held-out labels

by Theorem 1. T uses the training labels and this density the held-out ones, so that a held-out set
may have another label distribution than training (a balanced one, for example).

N: held-out samples.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from ..priors import Bins
from .inverse import solve
from .labels import atoms_of
from .settings import Criterion

if TYPE_CHECKING:
    from . import Rebalancer

Map = Callable[[NDArray], NDArray]
RANGES = 20  # equally wide ranges that count equally in a balanced metric
COARSE = 256  # nodes of the curve while sigma is chosen
SIGMAS = np.geomspace(0.02, 5, 25)  # tried, in standard deviations of the labels
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the isotonic curve in a blend
FOLDS = 5
MOST_SAMPLES, MOST_ROWS = 20_000, 1000  # held-out samples that are used, of D = 1 and of D > 1


def ranges(labels: NDArray) -> NDArray:
    """(N,) labels -> (N,) numbers of the ranges that count equally in a balanced metric: one for
    each value of labels that repeat (such as ages), else equally wide ones.
    """
    values, place = np.unique(labels, return_inverse=True)
    if len(values) <= max(len(labels) / 2, RANGES):
        return place
    edges = np.linspace(values[0], values[-1], RANGES + 1)
    return np.searchsorted(edges[1:-1], labels, side="right")


def balanced_weight(labels: NDArray, weight: NDArray, power: float = 1.0) -> NDArray:
    """(N,) weights with which labels (N,) are distributed as p^(1 - power), over their ranges."""
    place = ranges(labels)
    total = np.bincount(place, weights=weight)[place]
    return np.where(weight > 0, weight / np.maximum(total, 1e-300) ** power, 0.0)


def score(criterion: Criterion, m: NDArray, target: NDArray, weight: NDArray) -> float:
    """bMAE, or for any other criterion the balanced mean squared error, of (N,) predictions."""
    error = np.abs(m - target)
    error = error if criterion == "bmae" else error**2
    return float(np.average(error, weights=balanced_weight(target, weight)))


def inverse(r: "Rebalancer", sigma: float, dialled: bool = True) -> Map:
    """Return T^-1 for held-out predictions (n, D), or (n,), while sigma is chosen."""
    if sigma == 0:
        return np.copy
    if r.dims == 1:
        x, m = (t.numpy() for t in r.curve(sigma, COARSE, not dialled))
        return lambda pred: np.interp(pred, x, m)
    noise = torch.tensor(sigma, dtype=torch.float64)
    strength = r.strength if dialled else 1.0
    return lambda pred: solve(r.prior, noise, strength, torch.from_numpy(pred))[0].numpy()


def choose_sigma(r: "Rebalancer", pred: NDArray, target: NDArray, weight: NDArray) -> float:
    """Return the best sigma for held-out pred, target (n, D); 0, if a balanced metric prefers the
    plain predictions.
    """
    y, metric = torch.from_numpy(target), r.criterion != "nll"
    one = target.shape[1] == 1
    atoms, counts = map(torch.from_numpy, atoms_of(target[:, 0], weight))
    own = Bins(atoms, counts) if one else None
    scale = float(np.sqrt(np.average((target - target.mean(0)) ** 2, 0, weight).mean()))

    def balanced(m: NDArray) -> float:
        columns = zip(m.T, target.T, strict=True)
        return sum(score(r.criterion, a, b, weight) for a, b in columns)

    def loss(log_sigma: float) -> float:
        sigma = scale * float(np.exp(log_sigma))
        m = inverse(r, sigma, metric)(pred)
        if metric:
            return balanced(m)
        noise, found = r.noise(sigma), torch.from_numpy(m)
        if own is None:
            log_weights = torch.from_numpy(weight / weight.sum()).log()
            evidence = noise.log_evidence_atoms(found, y, log_weights).numpy()
        else:  # a smooth function of one number
            grid = torch.linspace(m.min(), m.max(), COARSE, dtype=torch.float64)[:, None]
            values = own.log_evidence(noise, grid, grid)
            evidence = np.interp(m[:, 0], grid[:, 0], values)
        return float(np.average(evidence - noise.log_prob(y, found).numpy(), weights=weight))

    tried = np.log(SIGMAS if one else SIGMAS[::3])
    losses = [loss(s) for s in tried]
    best = int(np.argmin(losses))
    near = tried[max(best - 1, 0)], tried[min(best + 1, len(tried) - 1)]
    found = minimize_scalar(loss, bounds=near, method="bounded", options={"xatol": 1e-3})
    log_sigma, least = min((found.x, found.fun), (tried[best], losses[best]), key=lambda p: p[1])
    return 0.0 if metric and balanced(pred) <= least else scale * float(np.exp(log_sigma))


def isotonic(
    pred: NDArray, target: NDArray, weight: NDArray, power: float
) -> tuple[NDArray, NDArray]:
    """Isotonic regression of (N,) labels on predictions, with balanced weights: nodes (G,), values
    (G,).
    """
    from sklearn.isotonic import IsotonicRegression

    balanced = balanced_weight(target, weight, power)
    model = IsotonicRegression().fit(pred, target, balanced)
    x, m = (np.asarray(a, dtype=np.float64) for a in (model.X_thresholds_, model.y_thresholds_))
    return (x, m) if len(x) > 1 else (np.array([x[0], x[0] + 1]), np.repeat(m, 2))


def fit_curves(
    r: "Rebalancer", x: NDArray, y: NDArray, weight: NDArray, hopeless: str | None
) -> None:
    """Set sigma, unless given, the isotonic nodes and their share, on held-out data (N, D).

    hopeless: why balancing cannot help; then the predictions are left as they are.
    """
    if hopeless is not None:
        warnings.warn(
            f"{hopeless} Balancing cannot help; predictions are left as they are.", stacklevel=3
        )
        r.sigma, r.share = torch.zeros((), dtype=torch.float64), 0.0
        return
    most = MOST_SAMPLES if r.dims == 1 else MOST_ROWS
    if len(y) > most:
        kept = np.random.default_rng(0).permutation(len(y))[:most]
        x, y, weight = x[kept], y[kept], weight[kept]
    if r.method != "isotonic" and not r.given:
        r.sigma = torch.tensor(choose_sigma(r, x, y, weight), dtype=torch.float64)
    if r.method == "theorem":
        return
    if r.dims > 1:
        raise ValueError("An isotonic curve has one dimension; use one Rebalancer for each.")
    power = 1.0 if r.power is None else r.power
    nodes = isotonic(x[:, 0], y[:, 0], weight, power)
    r.isotonic_x, r.isotonic_m = map(torch.from_numpy, nodes)
    r.share = choose_share(r, x, y, weight, power) if r.method == "blend" else 1.0


def choose_share(r: "Rebalancer", x: NDArray, y: NDArray, weight: NDArray, power: float) -> float:
    """Return the share of the isotonic curve with the smallest cross-validated balanced error."""
    fold = np.random.default_rng(0).permutation(len(x)) % FOLDS
    curves = np.zeros((2, len(x)))
    for k in range(FOLDS):
        train, test = fold != k, fold == k
        held = x[train], y[train], weight[train]
        sigma = float(r.sigma) if r.given else choose_sigma(r, *held)
        curves[0, test] = inverse(r, sigma)(x[test, 0])
        nodes = isotonic(held[0][:, 0], held[1][:, 0], held[2], power)
        curves[1, test] = r.strength * np.interp(x[test, 0], *nodes) + (1 - r.strength) * x[test, 0]
    losses = [
        score(r.criterion, (1 - share) * curves[0] + share * curves[1], y[:, 0], weight)
        for share in SHARES
    ]
    return SHARES[int(np.argmin(losses))]


def joined(r: "Rebalancer") -> tuple[Tensor, Tensor]:
    """Return the curve of a Rebalancer: Theorem 1's and the isotonic one, mixed by `share`."""
    theorem = None if r.share == 1 or r.without_noise else r.curve(float(r.sigma))
    if r.share == 0 and theorem is not None:
        return theorem
    x, m = r.isotonic_x.cpu(), r.isotonic_m.cpu()
    ends = r.ends.cpu()
    nodes = torch.cat([x, ends[ends.isfinite()], *([] if theorem is None else theorem[:1])])
    nodes = nodes.unique()
    found = torch.from_numpy(np.interp(nodes, x, m))
    found = r.strength * found + (1 - r.strength) * nodes
    other = nodes if theorem is None else torch.from_numpy(np.interp(nodes, *theorem))
    return nodes, r.share * found + (1 - r.share) * other
