"""Corners of post-hoc balancing: uneven bins, long tails, small noise, dimensions, state."""

from functools import cache

import numpy as np
import pytest
import torch

from losses import Bins, GaussianMixture, Histogram, Rebalancer
from losses.posthoc.labels import cells, tempered

RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=2000)
PRED = (NORMAL[:500] + RNG.normal(size=500)) / 2  # plain predictions for noise 1
TWO = GaussianMixture([0.7, 0.3], [[0.0], [4.0]], [[[1.0]], [[0.25]]])
FLAT = GaussianMixture(
    [0.3, 0.3, 0.4], [[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]], np.stack([0.3 * np.eye(2)] * 3)
)
BINS = Bins(np.linspace(-6, 8, 281), TWO.log_prob(torch.linspace(-6, 8, 281)[:, None]).exp())
POINTS = torch.from_numpy(RNG.uniform(-1, 6, size=(50, 2)))


def test_exported_newton_steps_converge():
    """Without values to read the line search cannot stop early."""
    r = Rebalancer(FLAT, sigma=1.0)
    exported = torch.export.export(r, (POINTS,)).module()
    torch.testing.assert_close(exported(POINTS), r(POINTS), rtol=0, atol=1e-9)


def test_each_dimension_has_its_own_noise():
    rng, scale = np.random.default_rng(0), np.array([1.0, 100.0])
    y = scale * rng.normal(size=(1000, 2))
    noise = np.array([1.0, 10.0])
    plain = (y + noise * rng.normal(size=y.shape)) * scale**2 / (scale**2 + noise**2)
    r = Rebalancer(y).fit(plain, y)
    np.testing.assert_allclose(r.sigma, noise, rtol=0.1)
    assert np.polyfit(plain[:, 0], r(plain)[:, 0], 1)[0] == pytest.approx(2, rel=0.1)


def test_uneven_bins_are_densities():
    uniform, edges = np.linspace(0, 10, 10_000, endpoint=False) + 5e-4, [0.0, 1.0, 2.0, 4.0, 10.0]
    bins = Bins.fit(uniform, edges)
    same = torch.tensor([[0.1, 0.1, 0.2, 0.6]]).log()  # p_train: nothing to balance
    for prior in (bins, uniform):
        assert Rebalancer(prior, likelihood=Histogram(edges))(same).item() == pytest.approx(5)
    labels = RNG.exponential(2, 5000).clip(0, 9.99)
    found, expected = tempered(Bins.fit(labels, edges), 0.5), Bins.fit(labels, edges, power=0.5)
    torch.testing.assert_close(found.weights, expected.weights, check_dtype=False)


def test_many_labels_are_counted_in_the_bins_of_a_histogram():
    labels = np.exp(1.5 * RNG.normal(size=20_000))
    edges = np.geomspace(labels.min() * 0.99, labels.max() * 1.01, 31)
    density = np.histogram(labels, edges)[0] / np.diff(edges)
    density = np.maximum(density, density[density > 0].min())
    found = Rebalancer(labels, likelihood=Histogram(edges)).log_p.exp().double().numpy()
    np.testing.assert_allclose(found / found.sum(), density / density.sum(), rtol=1e-4)


def test_a_weakly_tempered_mixture_keeps_its_tails():
    """N(0, 1)^power has variance 1 / power."""
    r = Rebalancer(GaussianMixture([1.0], [[0.0]], [[[1.0]]]), sigma=3.0, power=0.01)
    assert r(np.array([1.0]))[0] == pytest.approx(1 + 9 * 0.01, rel=1e-3)


def test_raw_labels_of_several_dimensions_have_a_range():
    labels, far = RNG.normal(size=(500, 2)), np.array([[4.0, 4.0]])
    np.testing.assert_array_equal(Rebalancer(labels, sigma=2.0)(far), labels.max(0)[None])
    with pytest.raises(ValueError, match=r"leave the label range by more than bound=0\.1"):
        Rebalancer(labels, sigma=2.0, bound=0.1)(far)


@pytest.mark.parametrize("criterion", ["nll", "bmae", "brmse"])
@pytest.mark.parametrize("method", ["theorem", "isotonic"])
@pytest.mark.parametrize("least", [0.0, 1e-9])
def test_samples_without_weight_change_nothing(criterion, method, least):
    weight = np.arange(500) % 3 + 0.0
    some = weight > 0
    pred, target = np.where(some, [PRED, NORMAL[:500]], 1e7)  # outliers
    r = Rebalancer(NORMAL, criterion=criterion, method=method)
    expected = r.fit(PRED[some], NORMAL[:500][some], sample_weight=weight[some])(PRED)
    repeats = np.repeat(np.arange(500), weight.astype(int))
    np.testing.assert_allclose(r.fit(PRED[repeats], NORMAL[repeats])(PRED), expected, atol=1e-6)
    found = r.fit(pred, target, sample_weight=np.where(some, weight, least))(PRED)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("criterion", ["nll", "bmae", "brmse"])
def test_repeated_samples_change_nothing(criterion):
    own, target = Rebalancer(NORMAL, criterion=criterion), NORMAL[:500]
    once = float(own.fit(PRED, target).sigma)
    twice = Rebalancer(NORMAL, criterion=criterion).fit(np.tile(PRED, 2), np.tile(target, 2))
    assert float(twice.sigma) == pytest.approx(once, rel=1e-6)
    assert once > 0.5


def test_tempering_improves_with_more_labels():
    x = np.linspace(-1, 4, 50)
    expected, errors = Rebalancer(TWO, sigma=1.0, power=0.5)(x), []
    for count in (1000, 100_000):
        first = RNG.random(count) < 0.7
        labels = np.where(first, RNG.normal(size=count), RNG.normal(4, 0.5, count))
        errors.append(np.abs(Rebalancer(labels, sigma=1.0, power=0.5)(x) - expected).max())
    assert errors[1] < 0.05 < 0.3 * errors[0] + 0.05


def test_a_long_tail_leaves_the_bulk_resolved():
    labels, m = np.exp(2 * RNG.normal(size=20_000)), np.linspace(0.3, 3, 20)
    mass = np.exp(-((m[:, None] - labels) ** 2) / (2 * 0.3**2))
    plain = mass @ labels / mass.sum(1)
    np.testing.assert_allclose(Rebalancer(labels, sigma=0.3)(plain), m, atol=1e-3)


@pytest.mark.parametrize(
    "settings", [{"likelihood": "laplace"}, {"point": "median"}, {"power": 0.5}, {}], ids=str
)
@pytest.mark.parametrize("prior", [TWO, NORMAL[:200], BINS], ids=["mixture", "labels", "bins"])
def test_small_noise_changes_little(prior, settings):
    x = np.linspace(-1, 1, 501)
    np.testing.assert_allclose(Rebalancer(prior, sigma=4e-3, **settings)(x), x, atol=1e-2)


@cache
def by_bmae() -> Rebalancer:
    return Rebalancer(NORMAL, criterion="bmae").fit(PRED, NORMAL[:500])


@pytest.mark.parametrize("dials", [{"strength": 0.0}, {"strength": 0.5}, {"power": 0.5}, {}])
@pytest.mark.parametrize("same", [True, False], ids=["same prior", "no prior"])
def test_a_state_holds_the_dials_and_the_prior(dials, same):
    fitted = by_bmae().at(**dials)
    other = Rebalancer(NORMAL) if same else Rebalancer()
    other.load_state_dict(fitted.state_dict())
    np.testing.assert_array_equal(other(PRED), fitted(PRED))
    np.testing.assert_array_equal(other.at(power=0.3)(PRED), fitted.at(power=0.3)(PRED))
    if "power" not in dials:
        several = Rebalancer(FLAT, 1.0, **dials)
        other = Rebalancer(FLAT) if same else Rebalancer()
        other.load_state_dict(several.state_dict())
        torch.testing.assert_close(other(POINTS), several(POINTS), rtol=0, atol=0)


def test_a_sigma_for_each_sample():
    x, sigma = PRED[:3], np.array([0.0, 1.0, 1.0])
    one = Rebalancer(NORMAL, sigma=1.0)(x)
    for r in (Rebalancer(NORMAL), Rebalancer(NORMAL, sigma=0.0), Rebalancer(NORMAL, sigma=5.0)):
        np.testing.assert_allclose(r(x, sigma), [x[0], *one[1:]], atol=1e-3)
    assert Rebalancer(FLAT, sigma=1.0)(np.zeros((0, 2))).shape == (0, 2)
    assert Rebalancer(NORMAL)(np.zeros(0), np.zeros(0)).shape == (0,)


def test_a_dimension_without_noise():
    """N(0, V) with noise in one dimension: (V + S) V^-1."""
    V, S = np.array([[2.0, 0.9], [0.9, 1.0]]), np.diag([0.0, 1.0])
    r = Rebalancer(GaussianMixture([1.0], [[0.0, 0.0]], [V]), sigma=[0.0, 1.0])
    x = RNG.normal(size=(5, 2))
    np.testing.assert_allclose(r(x), x @ ((V + S) @ np.linalg.inv(V)).T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sigma", [0.05, 0.1, 1.0])
@pytest.mark.parametrize(
    ("kind", "point"), [("gaussian", "median"), ("laplace", "mean"), ("huber", "median")]
)
def test_a_mixture_against_a_fine_sum(sigma, kind, point):
    """100,000 labels; at sigma 0.1 balancing moves predictions by about 0.01."""
    m, y = np.linspace(-1, 4, 6), np.linspace(-8, 8, 100_001)
    density = TWO.log_prob(torch.from_numpy(y)[:, None]).exp().numpy()
    r = np.abs(y - m[:, None]) / sigma
    energy = {"gaussian": r**2 / 2, "laplace": r}.get(kind, np.where(r < 1, r**2 / 2, r - 0.5))
    mass = density * np.exp(-energy)
    below = np.cumsum(mass, 1) / mass.sum(1, keepdims=True)
    plain = [y[k] for k in (below < 0.5).sum(1)] if point == "median" else mass @ y / mass.sum(1)
    found = Rebalancer(TWO, sigma, likelihood=kind, point=point)(np.array(plain))
    np.testing.assert_allclose(found, m, rtol=0, atol=5e-4)


def test_components_that_overlap_share_their_nodes():
    one, many = (GaussianMixture(np.ones(k), np.zeros((k, 1)), np.ones((k, 1, 1))) for k in (1, 16))
    assert len(cells(many)[0]) == len(cells(one)[0])


def fitted(labels=None, weight=None, prior=NORMAL, **settings) -> Rebalancer:
    return Rebalancer(prior, **settings).fit(PRED, NORMAL[:500], labels, weight)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fitted()(PRED[:2], [np.nan, 1.0]), "sigma must be finite"),
        (lambda: fitted(method="isotonic")(PRED[:2], [1.0, 1.0]), "isotonic curve has no sigma"),
        (lambda: fitted(method="isotonic").at(sigma=5.0), "set before an isotonic fit; use stren"),
        (lambda: fitted(sigma=[1.0, 2.0]), r"one per dimension \(1\), got 2"),
        (lambda: fitted(np.array([1.0, np.nan])), "Expected finite train_labels"),
        (lambda: fitted(np.zeros((5, 2))), r"got \(5, 2\)"),
        (lambda: fitted(prior=np.ones(50)), "nothing to balance"),
        (lambda: Rebalancer(FLAT, 2.0, bound=0.1)(POINTS), "bound needs the range of the labels"),
        *(
            (lambda weight=weight: fitted(weight=weight), "Expected 500 weights that are finite")
            for weight in (np.zeros(500), -np.ones(500), np.full(500, np.nan), np.ones(499))
        ),
        (lambda: fitted(method="nope"), "method must be one of theorem, isotonic, blend"),
        (lambda: fitted(criterion="mae"), "criterion must be one of"),
        (lambda: fitted(likelihood="normal"), "likelihood must be one of"),
        (lambda: fitted(strength=1.5), "strength must be between 0 and 1"),
        (lambda: fitted(power=-1.0), "power must be between 0 and 1"),
        (lambda: fitted(sigma=-1.0), "sigma must be a number"),
        (lambda: fitted(bound=-1.0), "bound must be"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_isotonic_curve_stays_inside():
    assert fitted(method="isotonic", bound=0.0)(np.array([10.0]))[0] <= NORMAL.max()
