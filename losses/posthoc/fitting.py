"""Choices on held-out predictions: sigma, the isotonic curve, and the share of each in a blend.

Sigma by maximum likelihood: with m = T^-1(plain prediction), the held-out labels have density

    p(y | x) = p_bal(y | m) p(y) / E_{y' ~ p}[ p_bal(y' | m) ],    p: the held-out labels

by Theorem 1. T uses the training labels and this density the held-out ones, so that a held-out set
may have another label distribution than training (a balanced one, for example).

N: held-out samples.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from ..mixture import GaussianMixture
from ..priors import Bins
from .inverse import Curve, noise, solve
from .labels import are_discrete, atoms_of

if TYPE_CHECKING:
    from . import Rebalancer

Criterion = Literal["nll", "bmae", "brmse"]
Method = Literal["theorem", "isotonic", "blend"]
Map = Callable[[NDArray], NDArray]
Nodes = tuple[NDArray, NDArray]
RANGES = 20  # equally wide ranges that count equally in a balanced metric
COARSE = 256  # nodes of the curve while sigma is chosen
SIGMAS = np.geomspace(0.02, 5, 25)  # tried, in standard deviations of the labels
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # tried: of the isotonic curve in a blend
FOLDS = 5
NEGLIGIBLE = 1e-6  # samples with a smaller share of the mean weight are left out
MOST_SAMPLES, MOST_ROWS = 20_000, 1000  # held-out samples that are used, of D = 1 and of D > 1


def significant(weight: NDArray, count: int) -> NDArray:
    """(N,) weights -> indices of all but negligible ones: outliers may have a tiny weight."""
    if (
        weight.shape != (count,)
        or not ((weight >= 0) & (weight < np.inf)).all()
        or not weight.any()
    ):
        raise ValueError(
            f"Expected {count} weights that are finite and >= 0, at least one of them positive."
        )
    return np.flatnonzero(weight > NEGLIGIBLE * weight[weight > 0].mean())


def ranges(labels: NDArray) -> NDArray:
    """(N,) labels -> (N,) numbers of the ranges that count equally in a balanced metric: one for
    each discrete label (such as ages), else equally wide ones.
    """
    values, place = np.unique(labels, return_inverse=True)
    if are_discrete(labels):
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


def fit_curves(r: "Rebalancer", x: NDArray, y: NDArray, weight: NDArray) -> None:
    """Set sigma, unless given, the isotonic nodes and their share, on held-out data (N, D)."""
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
    r.isotonic_x, r.isotonic_m = map(torch.from_numpy, isotonic(r, x, y, weight))
    share = choose_share(r, x, y, weight) if r.method == "blend" else 1.0
    r.share = torch.tensor(share, dtype=torch.float64)


def choose_sigma(r: "Rebalancer", pred: NDArray, target: NDArray, weight: NDArray) -> Any:
    """Return the best sigma for held-out pred, target (n, D): one number, or (D,) if the noise of
    the dimensions differs; 0, if a balanced metric prefers the plain predictions.
    """
    y, metric = torch.from_numpy(target), r.criterion != "nll"
    one = target.shape[1] == 1
    own = Bins(*atoms_of(target[:, 0], weight))
    center = np.average(target, 0, weight)
    scale = float(np.sqrt(np.average((target - center) ** 2, 0, weight).mean()))

    def balanced(m: NDArray) -> float:
        columns = zip(m.T, target.T, strict=True)
        return sum(score(r.criterion, a, b, weight) for a, b in columns)

    def nll(m: NDArray, sigma: Any) -> float:
        likelihood, found = noise(r.kind, sigma), torch.from_numpy(m)
        if one:  # a smooth function of one number
            grid = torch.linspace(m.min(), m.max(), COARSE, dtype=torch.float64)[:, None]
            values = own.log_evidence(likelihood, grid, grid)
            evidence = np.interp(m[:, 0], grid[:, 0], values)
        else:
            log_weights = torch.from_numpy(weight / weight.sum()).log()
            evidence = likelihood.log_evidence_atoms(found, y, log_weights).numpy()
        return float(np.average(evidence - likelihood.log_prob(y, found).numpy(), weights=weight))

    def loss(log_sigma: float, shape: Any, metric: bool) -> float:
        sigma = scale * float(np.exp(log_sigma)) * shape
        m = inverse(r, sigma, metric and r.balances)(pred)
        return balanced(m) if metric else nll(m, sigma)

    tried, shape = np.log(SIGMAS if one else SIGMAS[::3]), 1.0
    losses: list[float] = []
    if not one:
        shapes = shape, relative_noise(r, pred, target, weight)
        equal, own_each = ([loss(s, shape, metric=False) for s in tried] for shape in shapes)
        better = min(equal) - min(own_each) > target.shape[1] / len(target)  # by AIC
        shape, losses = shapes[int(better)], own_each if better else equal
    if one or metric:
        losses = [loss(s, shape, metric) for s in tried]
    best = int(np.argmin(losses))
    near = tried[max(best - 1, 0)], tried[min(best + 1, len(tried) - 1)]
    options: Any = {"bounds": near, "method": "bounded", "options": {"xatol": 1e-3}}
    found: Any = minimize_scalar(loss, args=(shape, metric), **options)
    log_sigma, least = min((found.x, found.fun), (tried[best], losses[best]), key=lambda p: p[1])
    if metric and r.balances and balanced(pred) <= least:
        return 0.0
    return scale * float(np.exp(log_sigma)) * shape


def relative_noise(r: "Rebalancer", pred: NDArray, target: NDArray, weight: NDArray) -> NDArray:
    """(D,) noise of each dimension on its own, divided by its mean."""
    found = []
    for d, (x, y) in enumerate(zip(pred.T, target.T, strict=True)):
        prior = r.prior.weights, r.prior.means[:, [d]], r.prior.covariances[:, [d]][:, :, [d]]
        with warnings.catch_warnings(action="ignore"):  # that balancing cannot help
            own = type(r)(GaussianMixture(*prior)).fit(x, y, sample_weight=weight)
        found.append(max(float(own.sigma), 1e-3 * float(y.std())))
    return np.array(found) / np.mean(found)


def inverse(r: "Rebalancer", sigma: Any, dialled: bool = True) -> Map:
    """Return T^-1 for held-out predictions (n, D), or (n,), while sigma is chosen."""
    if not np.any(sigma):
        return np.copy
    if r.dims == 1:
        x, m = (t.numpy() for t in r.curve(sigma, COARSE, not dialled))
        return lambda pred: np.interp(pred, x, m)
    value = torch.as_tensor(sigma, dtype=torch.float64)
    strength = r.strength if dialled else 1.0
    return lambda pred: solve(r.prior, value, strength, torch.from_numpy(pred)).numpy()


def isotonic(r: "Rebalancer", x: NDArray, y: NDArray, weight: NDArray) -> Nodes:
    """Isotonic regression of labels (N, 1), with balanced weights: nodes (G,), values (G,)."""
    from sklearn.isotonic import IsotonicRegression

    balanced = balanced_weight(y[:, 0], weight, r.power)
    model = IsotonicRegression().fit(x[:, 0], y[:, 0], balanced)
    nodes = np.asarray(model.X_thresholds_, float), np.asarray(model.y_thresholds_, float)
    return nodes if len(nodes[0]) > 1 else (nodes[0] + [0, 1], nodes[1].repeat(2))


def choose_share(r: "Rebalancer", x: NDArray, y: NDArray, weight: NDArray) -> float:
    """Return the share of the isotonic curve with the smallest cross-validated balanced error."""
    _, first, sample = np.unique(np.hstack([x, y]), True, True, axis=0)  # copies: in one fold
    fold = np.random.default_rng(0).permutation(len(first)) % FOLDS
    fold = fold[first.argsort().argsort()[sample.ravel()]]
    curves = np.zeros((2, len(x)))
    for k in range(FOLDS):
        test = fold == k
        held, pred = (x[~test], y[~test], weight[~test]), x[test, 0]
        sigma = float(r.sigma) if r.given else choose_sigma(r, *held)
        curves[0, test] = inverse(r, sigma)(pred)
        found = np.interp(pred, *isotonic(r, *held))
        curves[1, test] = r.strength * found + (1 - r.strength) * pred
    losses = [
        score(r.criterion, (1 - share) * curves[0] + share * curves[1], y[:, 0], weight)
        for share in SHARES
    ]
    return SHARES[int(np.argmin(losses))]


def joined(r: "Rebalancer") -> Curve:
    """Return the curve of a Rebalancer: Theorem 1's and the isotonic one, mixed by `share`."""
    share, sigma = float(r.share), float(r.sigma)
    theorem = r.curve(sigma) if share < 1 and sigma > 0 else None
    if share == 0 and theorem is not None:
        return theorem
    x, m, ends = (t.cpu() for t in (r.isotonic_x, r.isotonic_m, r.ends))
    nodes = torch.cat([x, ends, *([] if theorem is None else theorem[:1])])
    nodes = nodes.unique()
    found = torch.from_numpy(np.interp(nodes, x, m))
    found = r.strength * found + (1 - r.strength) * nodes
    other = nodes if theorem is None else torch.from_numpy(np.interp(nodes, *theorem))
    return nodes, share * found + (1 - share) * other
