"""The scikit-learn estimator: its contract, what it chooses, its intervals, and bad input."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from losses import BalancedRegressor, Flat, Gaussian, GaussianMixture, Laplace
from losses.estimator.training import held_out
from synthetic.benchmark.problems import Problem, make_splits


def line(count: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """normal_low of the synthetic benchmark: the true slope is 1, that of least squares 1/2."""
    split = make_splits(Problem("normal", "low"), 0, count, 1)["train"]
    return split.x.double().numpy(), split.y[:, 0].double().numpy()


def slope(model: BalancedRegressor) -> float:
    ends = model.predict(np.array([[4.0], [6.0]]))
    return float(ends[1] - ends[0]) / 2


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_it_keeps_scikit_learns_contract():
    results = check_estimator(BalancedRegressor(max_iter=2), on_skip=None)
    skipped = {r["check_name"] for r in results if r["status"] != "passed"}
    assert skipped <= {"check_array_api_input"}  # wants an environment variable
    assert len(results) > 40


@pytest.mark.parametrize(
    ("likelihood", "prior", "low", "high"),
    [
        ("gaussian", "flat", 0.4, 0.6),  # L1's and Huber's line, too
        ("gaussian", "bins", 0.9, 1.12),  # sigma is the noise: the true line
        ("gaussian", "mixture", 0.88, 1.12),
        ("laplace", "auto", 0.8, 3.0),  # as their scale it stands for a larger noise
        ("huber", "auto", 0.8, 3.0),
    ],
)
def test_balancing_stretches_the_line(likelihood: str, prior: str, low: float, high: float):
    x, y = line()
    one = {"hidden": (), "sigma": 1.0, "power": 1.0, "alpha": 1e-6}
    assert low < slope(BalancedRegressor(likelihood, prior, **one).fit(x, y)) < high


def test_sigma_and_power_are_chosen_by_the_balanced_error():
    x, y = line(600)
    model = BalancedRegressor(hidden=(), max_iter=40).fit(x, y)
    plain = BalancedRegressor(hidden=(), prior="flat", power=1.0, max_iter=40).fit(x, y)
    assert 0 < model.sigma_ < 1.5 * y.std()
    assert model.power_ in (0.0, 0.5, 1.0)
    even = np.linspace(2.5, 7.5, 101)  # test labels that are all as frequent
    errors = [np.abs(m.predict(even[:, None]) - even).mean() for m in (model, plain)]
    assert errors[0] < errors[1]


def test_balanced_predictions_stay_within_the_labels():
    """Beyond the outermost label the balanced loss is flat; a plain model may extrapolate."""
    x, y = line(300)
    far = np.array([[-1e3], [1e3]])
    fixed = {"hidden": (), "sigma": 0.5, "power": 1.0}
    for likelihood in ("gaussian", "laplace", "histogram"):
        model = BalancedRegressor(likelihood, **fixed).fit(x, y)
        pred = model.predict(far)
        assert (pred >= y.min()).all()
        assert (pred <= y.max()).all()
        low, high = model.predict_interval(far)
        assert ((low <= pred) & (pred <= high)).all()
    two = np.stack([y, -3 * y], 1)
    pred = BalancedRegressor(prior="mixture", **fixed).fit(x, two).predict(far)
    assert (pred >= two.min(0)).all()
    assert (pred <= two.max(0)).all()
    plain = BalancedRegressor(prior="flat", **fixed).fit(x, y).predict(far)
    assert plain[1] > 2 * y.max()


def test_intervals_hold_what_they_promise():
    x, y = line()
    for likelihood in ("gaussian", "laplace", "huber", "histogram"):
        # a balanced histogram says what labels would be if they were even: far more than these
        prior = "flat" if likelihood == "histogram" else "bins"
        model = BalancedRegressor(likelihood, prior, hidden=(), max_iter=40)
        model.fit(x[:1500], y[:1500])
        low, high = model.predict_interval(x[1500:], coverage=0.8)
        inside = ((low <= y[1500:]) & (y[1500:] <= high)).mean()
        assert 0.7 < inside < 0.95  # tuned for rare labels, looked at on frequent ones
        narrow = model.predict_interval(x[1500:], coverage=0.5)
        assert (narrow[1] - narrow[0] < high - low).all()
    model = BalancedRegressor(sigma=0.3, power=1.0, hidden=()).fit(x[:200], y[:200])
    low, high = model.predict_interval(x, coverage=0.95)
    np.testing.assert_allclose(high - low, 2 * 1.959964 * 0.3, rtol=1e-4)  # a Gaussian's
    with pytest.raises(ValueError, match="coverage must be between 0 and 1"):
        model.predict_interval(x, coverage=90)


def test_several_dimensions_and_a_column_keep_their_shape():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    y = x @ rng.normal(size=(3, 2)) + rng.normal(size=(120, 2))
    model = BalancedRegressor(max_iter=10).fit(x, y)
    assert model.predict(x).shape == (120, 2)
    assert model.predict_interval(x).shape == (2, 120, 2)
    assert BalancedRegressor(max_iter=5).fit(x, y[:, :1]).predict(x).shape == (120, 1)


def test_instances_of_likelihoods_and_priors_are_taken_and_left_alone():
    x, y = line(300)
    y = 1000 + 100 * y
    prior, gaussian = GaussianMixture.fit(y, 1), Gaussian(80.0, learn_sigma=True)
    model = BalancedRegressor(gaussian, prior, hidden=(), power=1.0).fit(x, y)
    assert gaussian.sigma.item() == pytest.approx(80)
    assert 85 < model.loss_.likelihood.sigma.item() < 115  # learnt, in the labels' unit
    named = BalancedRegressor(prior="mixture", sigma=100, hidden=(), power=1.0).fit(x, y)
    given = BalancedRegressor(prior=prior, sigma=100, hidden=(), power=1.0).fit(x, y)
    np.testing.assert_allclose(given.predict(x), named.predict(x), atol=8)  # four components, one
    assert BalancedRegressor(Laplace(0.5), Flat(), power=1.0).fit(x, y).predict(x).shape == (300,)


@pytest.mark.parametrize("prior", ["flat", "bins"])
@pytest.mark.parametrize("kind", [Gaussian, Laplace])
@pytest.mark.parametrize("size", [0.3, 0.03])
def test_a_learned_scale_is_the_noise_from_any_start(kind, prior: str, size: float):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(300, 3)), size * rng.normal(size=300)
    y = 3 * x[:, 0] + noise
    expected = noise.std() if kind is Gaussian else np.abs(noise).mean()
    for start in (0.1, 10.0):
        options = {"learn_sigma" if kind is Gaussian else "learn_scale": True}
        model = BalancedRegressor(kind(start, **options), prior, hidden=(), power=1.0).fit(x, y)
        assert model.loss_.sigma.item() == pytest.approx(expected, rel=0.1)  # of 300 samples
        assert model.noise_ == pytest.approx(model.loss_.sigma.item())
        assert np.abs(model.predict(x) - y).mean() < size


def test_negligible_weights_change_nothing():
    """30 outliers of weight 1e-9 moved the noise from 3.5 to 409."""
    x, y = line(300)
    far, high = np.vstack([x, np.zeros((30, 1))]), np.append(y, np.full(30, 1000.0))
    weight = np.append(np.ones(300), np.full(30, 1e-9))
    for likelihood in ("gaussian", "laplace", "huber"):
        model = BalancedRegressor(likelihood, hidden=(), max_iter=10)
        expected = clone(model).fit(x, y)
        found = model.fit(far, high, sample_weight=weight)
        np.testing.assert_allclose(found.noise_, expected.noise_)
        np.testing.assert_allclose(found.sigma_, expected.sigma_)
        np.testing.assert_allclose(found.predict(x), expected.predict(x))


@pytest.mark.parametrize("likelihood", ["gaussian", "histogram"])
@pytest.mark.parametrize("seed", [0, 5])  # 5: the only 1 is held out
def test_a_label_that_occurs_once(likelihood: str, seed: int):
    x = np.arange(100.0)[:, None]
    y = (x[:, 0] == 99).astype(float)
    model = BalancedRegressor(likelihood, hidden=(), max_iter=5, random_state=seed)
    assert np.isfinite(model.fit(x, y).predict(x)).all()
    with pytest.raises(ValueError, match="All labels are 0: nothing can be learnt"):
        model.fit(x, y, sample_weight=np.where(y > 0, 1e-9, 1))


def test_sigma_and_noise_count_weights():
    """Samples of a tenth of the weight have a tenth of the influence on the squared error."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 1))
    noise = np.where(np.arange(4000) % 2, 1.0, 5.0)
    y = 10 * x[:, 0] + noise * rng.normal(size=4000)
    weight = np.where(noise > 1, 0.1, 1.0)
    model = BalancedRegressor(hidden=(), power=1.0, sigma=1.0, max_iter=30, prior="flat")
    found = clone(model).set_params(sigma="auto").fit(x, y, sample_weight=weight)
    expected = np.sqrt((1 * 1 + 0.1 * 25) / 1.1)
    assert found.noise_ == pytest.approx(expected, rel=0.1)
    assert found.sigma_ / expected == pytest.approx(1, rel=0.55)  # one of 0.5, 0.75, 1 times


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.4, 0.7, 0.9])
def test_the_given_fraction_is_held_out(fraction: float):
    labels = torch.arange(500.0)[:, None]
    mask = held_out(labels, fraction, seed=0)
    assert mask.double().mean() == pytest.approx(fraction, abs=0.005)
    halves = [float(half.double().mean()) for half in mask.chunk(2)]
    assert halves == pytest.approx([fraction] * 2, abs=0.01)  # at each end of the labels


def test_many_samples_need_no_smaller_penalty():
    """The penalty is divided by N: the same rows ten times more densely fit at least as well."""
    rng = np.random.default_rng(0)
    errors = []
    for count in (500, 5000):
        x = rng.uniform(-3, 3, size=(count, 1))
        y = 10 * np.sin(2 * x[:, 0])
        model = BalancedRegressor(prior="flat", sigma=1.0, power=1.0, max_iter=150).fit(x, y)
        errors.append(np.abs(model.predict(x) - y).mean())
    assert errors[1] < 0.8 * errors[0]


def test_a_training_that_is_cut_short_warns():
    x, y = line(100)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 steps"):
        BalancedRegressor(sigma=0.5, power=1.0, max_iter=2).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BalancedRegressor(hidden=(), sigma=0.5, power=1.0).fit(x, y)


def test_a_search_does_not_prefer_the_plain_loss():
    """By R^2 the plain loss always wins; `score` gives every range of the label equal weight."""
    x, y = line(600)
    model = BalancedRegressor(hidden=(), sigma=0.7, power=1.0)
    search = GridSearchCV(model, {"prior": ["flat", "bins"]}, cv=3).fit(x, y)
    assert search.best_params_ == {"prior": "bins"}
    best = search.best_estimator_
    assert best.score(x, y) < 1
    assert best.score(np.repeat(x, 2, 0), np.repeat(y, 2)) == pytest.approx(best.score(x, y))
    two = clone(model).set_params(prior="mixture", sigma=[0.7, 1.4]).fit(x, np.stack([y, 2 * y], 1))
    assert two.score(x, np.stack([y, 2 * y], 1)) == pytest.approx(best.score(x, y), abs=0.1)


def test_a_score_ignores_samples_of_weight_zero():
    x, y = line(60)
    model = BalancedRegressor(hidden=(), sigma=0.7, power=1.0, max_iter=5).fit(x, y)
    some = y < np.quantile(y, 0.9)  # the highest range has no weight left
    score = model.score(x, y, sample_weight=some.astype(float))
    assert score == pytest.approx(model.score(x[some], y[some]))


def test_nothing_is_drawn_from_the_global_generator():
    x, y = line(60)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    BalancedRegressor(max_iter=2).fit(x, y)
    assert torch.equal(before, torch.get_rng_state())


X, Y = np.random.default_rng(0).normal(size=(50, 2)), np.linspace(0, 1, 50)


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({}, np.where(Y > 0.5, np.nan, Y), "Input y contains NaN"),
        ({}, np.full(50, 7.0), "All labels are 7: nothing can be learnt"),
        ({}, np.array(["tall"] * 50), "could not convert string to float: .*'tall'"),
        ({"likelihood": "normal"}, Y, "among .*'laplace'.* Got 'normal' instead"),
        ({"prior": "batch"}, Y, "among .*'mixture'.* Got 'batch' instead"),
        ({"sigma": -1}, Y, r"'sigma' .* among {'auto'}, a float in the range \(0.0, .* Got -1"),
        ({"sigma": [1.0, 2.0]}, Y, "sigma must be one number, or 1: one per label dimension"),
        ({"power": "half"}, Y, r"among {'auto'} or a float in the range \[0.0, .* Got 'half'"),
        ({"prior": "mixture", "power": 0.5}, Y, "Only prior='bins' can be tempered"),
        ({"prior": "bins"}, np.stack([Y, Y**2], 1), "use prior='mixture'"),
        ({"validation_fraction": 2.0}, Y, r"in the range \(0.0, 1.0\). Got 2.0"),
        ({"hidden": 8}, Y, "'hidden' .* must be an array-like. Got 8"),
        ({"hidden": (0,)}, Y, r"a sequence of widths, such as \(32,\); got \[0\]"),
        ({"alpha": -1}, Y, r"in the range \[0.0, inf\). Got -1"),
        ({"max_iter": 0}, Y, r"an int in the range \[1, inf\). Got 0"),
    ],
)
def test_bad_input_is_refused(options: dict, labels, message: str):
    with pytest.raises(ValueError, match=message):
        BalancedRegressor(**{"max_iter": 2, **options}).fit(X, labels)


@pytest.mark.parametrize("unit", [1e-300, 1e-9, 1e9, 1e300])
def test_the_unit_does_not_matter(unit: float):
    options = {"hidden": (), "power": 1.0, "max_iter": 5}
    expected = BalancedRegressor(sigma=0.2, **options).fit(X, Y).predict(X)
    model = BalancedRegressor(sigma=0.2 * unit, **options).fit(X * unit, Y * unit)
    np.testing.assert_allclose(model.predict(X * unit) / unit, expected)


def test_one_sample_is_refused_and_twelve_are_enough_to_fit():
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        BalancedRegressor().fit(X[:1], Y[:1])
    with pytest.raises(ValueError, match="at least one non-zero"):
        BalancedRegressor().fit(X, Y, sample_weight=np.zeros(50))
    assert np.isfinite(BalancedRegressor(max_iter=5).fit(X[:12], Y[:12]).predict(X)).all()


def test_importing_the_losses_stays_quick():
    """And has no side effects: torch's compiler, say, switches off some checks."""
    slow = ("sklearn", "matplotlib", "torch._dynamo")
    code = f"import sys, losses; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
