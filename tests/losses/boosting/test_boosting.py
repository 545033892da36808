"""The objective of boosters: derivatives, the bound, the start, and the two real libraries."""

import pickle
import timeit

import lightgbm
import numpy as np
import pytest
import torch
import xgboost
from torch import Tensor
from torch.func import grad, vmap

from losses import (
    BalancedLoss,
    Batch,
    Bins,
    Flat,
    Gaussian,
    GaussianMixture,
    Histogram,
    Huber,
    Laplace,
    Product,
)
from losses.boosting import BalancedBooster, Objective, objective
from synthetic.benchmark.problems import Problem, make_splits
from tests.losses.boosting.boosters import ETAS, KINDS, case, train
from tests.losses.pairs import D64, mixture

EDGES = np.linspace(-4.0, 8.0, 41)
MIDDLES = (EDGES[1:] + EDGES[:-1]) / 2
PAIRS = {
    "MSE": (Gaussian(0.7), Flat()),
    "GAI": (Gaussian(0.7), mixture(1, D64)),
    "BNI": (Gaussian(0.7), Bins(MIDDLES, np.exp(-np.abs(EDGES[1:])))),
    "power 0": (Gaussian(0.7), Bins(MIDDLES, np.exp(-np.abs(EDGES[1:])), power=0.0)),
    "Laplace": (Laplace(0.7), mixture(1, D64)),
    "Huber": (Huber(0.7), Bins(MIDDLES, np.exp(-np.abs(EDGES[1:])))),
    "negative": (Huber(0.5, delta=0.5), Bins([-4.0, 4.0], np.ones(2))),  # second derivative
}


def rows(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.exponential(1.0, count)
    return labels, labels + rng.normal(0, 1.0, count)


def true_derivatives(loss: BalancedLoss, labels, pred) -> tuple[np.ndarray, np.ndarray]:
    """Torch's gradient and second derivative of each row of the loss."""

    def row(x: Tensor, y: Tensor) -> Tensor:
        return loss.rows(x[None, None], y[None, None])[0]

    given = torch.tensor(pred), torch.tensor(labels)
    first, second = (vmap(slope)(*given) for slope in (grad(row), grad(grad(row))))
    return first.numpy(), second.numpy()


@pytest.mark.parametrize("pair", PAIRS.values(), ids=list(PAIRS))
def test_derivatives_are_torchs(pair):
    labels, pred = rows()
    grad, hess = objective(*pair)(labels, pred)
    loss = BalancedLoss(*pair).double()
    first, second = true_derivatives(loss, labels, pred)
    scale = float(pair[0].value) ** 2
    np.testing.assert_allclose(grad, scale * first, rtol=1e-10, atol=1e-10)
    if isinstance(pair[0], Gaussian):
        np.testing.assert_allclose(hess, np.maximum(scale * second, hess.min()), rtol=1e-10)
        assert (hess > hess.min()).mean() > 0.5 or np.ptp(second) == 0  # not all at the bound
    assert (hess >= scale * second - 1e-10).all()  # never below the true one
    assert (hess > 0).all()


@pytest.mark.parametrize("pair", PAIRS.values(), ids=list(PAIRS))
def test_a_curve_that_is_read_says_what_the_sum_says(pair, monkeypatch: pytest.MonkeyPatch):
    labels, pred = rows()
    read = objective(*pair)(labels, pred)
    monkeypatch.setattr("losses.boosting.line.TOLERANCE", -1.0)
    exact = objective(*pair)(labels, pred)
    np.testing.assert_allclose(read, exact, rtol=1e-10, atol=1e-10)


def test_laplace_noise_and_narrow_components_far_apart():
    y = np.repeat([0.0, 30.0, 75.0], 20) + np.linspace(-2, 2, 60)
    prior = GaussianMixture(np.ones(3), [[0.0], [30.0], [75.0]], np.full((3, 1, 1), 2.0))
    grad, hess = objective(Laplace(16.0), prior)(y, y + 0.5)
    assert np.isfinite(grad).all()
    assert (hess > 0).all()


def test_weights_multiply_and_several_dimensions_keep_their_shape():
    labels, pred = rows()
    weight = np.linspace(0.5, 2, len(labels))
    f = objective(Gaussian(0.7), mixture(1, D64))
    np.testing.assert_allclose(f(labels, pred, weight), weight * f(labels, pred))
    both = np.stack([labels, labels[::-1]], 1)
    near = both + 0.3 * np.random.default_rng(1).normal(size=both.shape)
    grad, hess = objective(Gaussian([0.5, 1.0]), mixture(2, D64))(both, near)
    loss = BalancedLoss(Gaussian([0.5, 1.0]), mixture(2, D64)).double()
    x = torch.tensor(near, requires_grad=True)
    (slope,) = torch.autograd.grad(loss.rows(x, torch.tensor(both)).sum(), x)
    np.testing.assert_allclose(grad, slope.numpy() * [0.25, 1.0], rtol=1e-10, atol=1e-10)
    assert hess.shape == both.shape
    assert (hess > 0).all()


def test_blocks_have_their_own_scales():
    labels, pred = (np.stack([a, a[::-1]], 1) for a in rows())
    prior = PAIRS["BNI"][1]
    grad, hess = objective(Gaussian([0.5, 1.0]), Product([prior, prior]))(labels, pred)
    for d, sigma in enumerate((0.5, 1.0)):
        expected = objective(Gaussian(sigma), prior)(labels[:, d], pred[:, d])
        np.testing.assert_allclose((grad[:, d], hess[:, d]), expected)


def test_the_bound_holds_for_labels_with_gaps():
    """The largest second derivative by brute force, at and between all labels and predictions."""
    rng = np.random.default_rng(0)
    for centers, weights, sigma in (
        ([0.0, 39.8, 91.2, 100.0], np.ones(4), 0.11),
        ([0.0, 50.0, 100.0], np.array([1.0, 1e-9, 1.0]), 20.0),  # the middle hardly counts
        (np.exp(rng.uniform(0, 8, 30)), rng.uniform(0.01, 1, 30), 1.0),
    ):
        y = np.asarray(centers)
        pred = np.append(y, np.linspace(y.min(), y.max(), 100_001))
        f = objective(Gaussian(sigma), Bins(y, weights), learning_rate=1.0)
        least = f(np.resize(y, len(pred)), pred)[1].min()  # everywhere at least L / 2
        i, j = np.triu_indices(len(y), 1)  # where two labels explain a prediction equally
        middles = (y[i] + y[j]) / 2 - sigma**2 * np.log(weights[i] / weights[j]) / (y[i] - y[j])
        points = np.append(pred, middles)
        log = np.log(weights) - (points[:, None] - y) ** 2 / (2 * sigma**2)
        share = np.exp(log - log.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        variance = share @ y**2 - (share @ y) ** 2
        assert 1 <= 2 * least / (variance.max() / sigma**2) < 1.2


@pytest.mark.parametrize("index", range(len(KINDS)), ids=KINDS)
def test_the_loss_never_rises_and_predictions_stay_near_the_labels(index: int):
    """One distribution of each kind of tests/losses/boosting/boosters.py."""
    given = case(index, count=200)
    for library in ETAS:
        if given.y.ndim == 1 or library == "xgboost":
            found = train(given, library, rounds=25)
            assert found.rise < 1e-5  # predictions in float32
            assert found.fall > 0
            assert found.excess < 0.5


def clusters() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    return x, np.where(x[:, 0] > 0, 100, 0) + x[:, 1] + 0.5 * rng.normal(size=400)


def test_clusters_are_learnt_from_plain_predictions():
    x, y = clusters()
    f = objective(Gaussian(5.0), Bins.fit(y, np.linspace(y.min(), y.max(), 101)))
    for booster in (
        lightgbm.LGBMRegressor(n_estimators=50, verbose=-1, n_jobs=1),
        xgboost.XGBRegressor(
            n_estimators=50, n_jobs=1
        ),  # its learning rate is 0.3, the objective's 0.1
    ):
        model = BalancedBooster(booster, f).fit(x, y)
        assert np.abs(model.predict(x) - y).mean() < 2
    two = np.stack([y, -y], 1)
    g = objective(Gaussian(2.0), GaussianMixture.fit(two, 2))
    pred = (
        BalancedBooster(xgboost.XGBRegressor(n_estimators=50, n_jobs=1), g).fit(x, two).predict(x)
    )
    assert np.abs(pred - two).mean() < 2


def test_without_a_split_the_mean_is_predicted():
    x, y = clusters()
    f = objective(Gaussian(2.0), Bins.fit(y, np.linspace(y.min(), y.max(), 101)))
    booster = lightgbm.LGBMRegressor(min_child_samples=300, verbose=-1, n_jobs=1)
    pred = BalancedBooster(booster, f).fit(x, y).predict(x[:3])
    np.testing.assert_allclose(pred, y.mean(), rtol=1e-6)
    with pytest.raises(TypeError, match="expected an LGBMRegressor or an XGBRegressor"):
        BalancedBooster(None, f).fit(x, y)


def test_bins_are_as_fast_as_a_mixture():
    """Sharp bins, where a spline of the whole range would not do. The best of five each."""
    labels = np.random.default_rng(0).exponential(10, 5000)
    seconds = []
    for prior in (
        Bins.fit(labels, np.linspace(0, labels.max(), 41)),
        GaussianMixture.fit(labels, 4),
    ):
        f = objective(Gaussian(0.3), prior)
        f(labels, labels + 0.1)
        best = min(timeit.repeat(lambda f=f: f(labels, labels + 0.1), number=1, repeat=5))
        seconds.append(best)
    assert seconds[0] < 4 * seconds[1]  # was eleven


def test_labels_outside_the_prior_are_named():
    x, y = clusters()
    standard = (y - y.mean()) / y.std()
    prior = Bins.fit(standard, np.linspace(standard.min(), standard.max(), 21))
    with pytest.raises(ValueError, match="lie outside the bins of the prior"):
        lightgbm.LGBMRegressor(objective=objective(Gaussian(1.0), prior), verbose=-1).fit(x, y)
    far = objective(Gaussian(1.0), GaussianMixture.fit(standard, 1))  # slow, but not an error
    lightgbm.LGBMRegressor(objective=far, verbose=-1, n_jobs=1, n_estimators=5).fit(x, y)


@pytest.mark.parametrize("start", [0.0, 0.3])  # equal predictions, then others
def test_labels_of_weight_zero_do_not_matter(start: float):
    labels, pred = rows()
    far, weight = labels.copy(), np.append(0.0, np.ones(len(labels) - 1))
    far[0] = 1e4
    found, expected = (objective(*PAIRS["BNI"])(y, start * pred, weight) for y in (far, labels))
    np.testing.assert_allclose(found, expected)


def test_no_leaf_step_makes_the_loss_worse():
    """A single leaf that holds some rows, at the learning rate that was promised, from anywhere."""
    labels, _ = rows()
    for likelihood, prior in (PAIRS["BNI"], PAIRS["Huber"], PAIRS["GAI"]):
        loss = BalancedLoss(likelihood, prior).double()
        f = objective(likelihood, prior, learning_rate=1.0)
        for start in (-3.0, 0.0, 2.0, 7.0):
            for part in (labels[:3], labels[:50], labels[labels > 2]):
                pred = np.full(len(part), start)
                grad, hess = f.derivatives(part[:, None], pred[:, None])
                moved = pred - grad.sum() / hess.sum()
                before, after = (
                    loss.rows(torch.tensor(p)[:, None], torch.tensor(part)[:, None]).sum()
                    for p in (pred, moved)
                )
                assert after <= before + 1e-9


def boosters(f: Objective | None, x: np.ndarray, y: np.ndarray) -> dict:
    """Each library through both of its doors; f: None for its own L2."""
    light = {"num_leaves": 8, "min_child_samples": 200, "verbose": -1, "num_threads": 1}
    extreme = {"max_depth": 3, "min_child_weight": 40, "learning_rate": 0.1, "nthread": 1}
    one = {} if f is None else {"objective": f}
    data, matrix = lightgbm.Dataset(x, y), xgboost.DMatrix(x, y)
    door = xgboost.train(extreme, matrix, 60, obj=f)
    return {
        "LGBMRegressor": lightgbm.LGBMRegressor(n_estimators=60, **light, **one).fit(x, y).predict,
        "lightgbm.train": lightgbm.train({**light, **one}, data, 60).predict,
        "XGBRegressor": xgboost.XGBRegressor(n_estimators=60, **extreme, **one).fit(x, y).predict,
        "xgboost.train": lambda grid: door.predict(xgboost.DMatrix(grid)),
    }


def test_both_libraries_reproduce_the_line_of_the_synthetic_benchmark():
    """normal_high: y = x + noise of size one, labels within half of that. The oracle's slope is 1,
    that of least squares v / (v + 1) = 0.2.
    """
    split = make_splits(Problem("normal", "high"), 0, 10_000, 1)["train"]
    x, y = split.x.numpy(), split.y[:, 0].numpy()
    grid = np.linspace(3.5, 6.5, 61)[:, None]  # trees know nothing beyond the inputs they saw
    prior = GaussianMixture.fit(y, components=1)

    def slopes(f) -> dict[str, float]:
        fitted = boosters(f, x, y)
        return {name: np.polyfit(grid[:, 0], p(grid), 1)[0] for name, p in fitted.items()}

    assert all(slope < 0.3 for slope in slopes(None).values())
    for name, slope in slopes(objective(Gaussian(1.0), prior)).items():
        assert abs(slope - 1) < 0.1, f"{name}: slope {slope}"


@pytest.mark.parametrize("middle", [0.0, 1000.0])
def test_the_first_tree_starts_from_the_mean(middle: float):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 1))
    y = x[:, 0] + rng.normal(size=500) + middle
    prior = GaussianMixture.fit(y, components=1)
    f = objective(Gaussian(1.0), prior)
    model = lightgbm.LGBMRegressor(objective=f, n_estimators=1, verbose=-1).fit(x, y)
    assert abs(model.predict(x).mean() - y.mean()) < 0.1
    shift = {"base_score": float(y.mean()), "learning_rate": 0.1}
    other = xgboost.XGBRegressor(objective=f, n_estimators=1, **shift).fit(x, y)
    assert abs(other.predict(x).mean() - y.mean()) < 0.1


def test_an_objective_is_copied_and_pickled_and_leaves_its_parts_alone():
    gaussian, prior = Gaussian(0.7), mixture(1, D64)
    f = objective(gaussian, prior)
    labels, pred = rows()
    np.testing.assert_array_equal(f(labels, pred), pickle.loads(pickle.dumps(f))(labels, pred))
    assert gaussian.sigma.dtype == torch.float32


BINS = Bins([0.0, 1.0], [1.0, 1.0])
PLAIN = objective(Gaussian(), BINS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: objective(Gaussian("auto"), BINS), "give a number in units of the labels"),
        (lambda: objective(Gaussian(1.0, learn_sigma=True), BINS), "cannot learn sigma"),
        (lambda: objective(Gaussian(), Batch()), "A booster has no batches; use Bins.fit"),
        (lambda: objective(Histogram(EDGES), BINS), "one number per label, but Histogram needs"),
        (lambda: objective(Gaussian(), None), "prior is a Prior, such as Bins.fit"),
        (lambda: objective(Gaussian(), BINS, learning_rate=0.0), r"in \(0, 1\], got 0.0"),
        (lambda: objective(Gaussian(), BINS, learning_rate="fast"), r"in \(0, 1\], got fast"),
        (lambda: objective(Gaussian(), BINS, strength=-1), "strength must be a number >= 0"),
        (lambda: objective(Gaussian(), BINS, strength="much"), "number >= 0, got much"),
        (lambda: PLAIN([np.nan, 1], [0, 0]), r"samples \[0\] are not"),
        (lambda: PLAIN([0, 1, 2], [0, 0]), r"got \(3,\)"),
        (lambda: PLAIN(["a", "b"], [0, 0]), "labels must be numbers"),
        (lambda: PLAIN([], []), "expected labels and predictions, got none"),
        (lambda: PLAIN([0, 1], [np.nan, 1]), "not finite: training diverged"),
        (lambda: PLAIN([0, 1], [0, 1], [1.0]), "a weight >= 0 for each of 2 samples"),
        (lambda: PLAIN([0, 1], [0, 1], [1.0, -1.0]), "a weight >= 0 for each of 2 samples"),
        (lambda: PLAIN([0, 1], [0, 1], [0.0, 0.0]), "all weights are zero"),
    ],
)
def test_bad_input_is_refused(call, message: str):
    with pytest.raises(ValueError, match=message):
        call()


def test_another_learning_rate_than_the_boosters_is_noticed():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = 100 + np.exp(x[:, 0])
    prior = Bins.fit(y, np.linspace(y.min(), y.max(), 21))
    f = objective(Gaussian(0.5), prior, learning_rate=0.1)
    with pytest.raises(ValueError, match=r"learning rate seems to be 0.3, .* has 0.1"):
        lightgbm.LGBMRegressor(objective=f, learning_rate=0.3, n_jobs=1, verbose=-1).fit(x, y)
    lightgbm.LGBMRegressor(objective=f, learning_rate=0.1, n_jobs=1, verbose=-1).fit(x, y)


def test_another_learning_rate_is_noticed_without_a_split():
    """XGBoost's default is 0.3, the objective's 0.1: predictions were 186, -185, 556, ..."""
    x = np.random.default_rng(0).normal(size=(200, 2))
    y = np.digitize(x[:, 0], [-1, 1]) * 60 + x[:, 0]
    f = objective(Gaussian(3.0), Bins.fit(y, np.arange(-10, 131, 2.0)))
    with pytest.raises(ValueError, match=r"learning rate seems to be 0.29, .* has 0.1"):
        xgboost.XGBRegressor(n_estimators=5, n_jobs=1, objective=f).fit(x, y)
    f(y, np.zeros(200))
    f(y + 1, np.full(200, 1e4))  # the start of another training


def test_a_booster_starts_anew_with_an_objective_that_was_used():
    x, y = clusters()
    f = objective(Gaussian(2.0), Bins.fit(y, np.arange(-5, 106, 1.0)), learning_rate=0.3)
    data = xgboost.DMatrix(x, y - y.mean())
    xgboost.train({"base_score": 0.0, "nthread": 1}, data, 1, obj=f)  # only a first tree
    BalancedBooster(xgboost.XGBRegressor(n_estimators=2, n_jobs=1), f).fit(x, y)
