"""Post-hoc balancing: T and its inverse, sigma, isotonic curves, and bad input."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import gaussian_kde

from losses import (
    Bins,
    Categorical,
    Classes,
    Flat,
    Gaussian,
    GaussianMixture,
    Histogram,
    Rebalancer,
)
from losses.fast import log_evidence_slopes
from losses.posthoc.inverse import noise, plain, posterior

RNG = np.random.default_rng(0)
LABELS = np.concatenate([RNG.normal(0, 1, 3000), RNG.normal(4, 0.5, 500)])
MIXTURE = GaussianMixture(
    torch.tensor([0.8, 0.2], dtype=torch.float64),
    [[0.0], [4.0]],
    [[[1.0]], [[0.25]]],
)
GRID = np.linspace(-6, 8, 281)
BINS = Bins(GRID, MIXTURE.log_prob(torch.from_numpy(GRID)[:, None]).exp())
NORMAL = GaussianMixture([1.0], [[1.0]], [[[4.0]]])
PRIORS = {
    "bins": BINS,
    "mixture": MIXTURE,
    "labels": LABELS,
    "kde": gaussian_kde(LABELS),
    "ages": np.round(10 * LABELS),
}
M = np.linspace(-2, 5, 50)


def curve(r: Rebalancer, m=M) -> np.ndarray:
    """T by its definition, without the table."""
    return plain(r.prior, noise(r.kind, float(r.sigma)), r.point, torch.from_numpy(m)).numpy()


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize(
    ("kind", "point"), [("gaussian", "mean"), ("gaussian", "median"), ("laplace", "median")]
)
def test_inverse_undoes_the_curve(name, kind, point):
    r = Rebalancer(PRIORS[name], 1.0, likelihood=kind, point=point)
    low, high = (max(r.x[0], -50.0), min(r.x[-1], 50.0))
    x = np.linspace(float(low), float(high), 1000)
    np.testing.assert_allclose(np.interp(r(x), r.m, r.x), x, rtol=0, atol=1e-10)
    assert (np.diff(r(x)) > 0).all()
    # The table has 4096 nodes: the definition agrees up to the square of their distance.
    np.testing.assert_allclose(r(curve(r)), M, rtol=0, atol=2e-4 if point == "mean" else 2e-2)


@pytest.mark.parametrize("name", ["bins", "mixture", "labels"])
@pytest.mark.parametrize("sigma", [0.3, 1.0])
def test_curve_is_the_posterior_mean(name, sigma):
    r = Rebalancer(PRIORS[name], sigma)
    for m, found in zip(M[::7], curve(r, M[::7]), strict=True):
        if name == "mixture":
            y = np.linspace(m - 9 * sigma, m + 9 * sigma, 4001)  # the trapezoid rule is exact here
            mass = MIXTURE.log_prob(torch.from_numpy(y)[:, None]).exp().numpy()
        else:
            y, mass = (t.double().numpy() for t in (r.prior.centers, r.prior.weights))
        mass = mass * np.exp(-((y - m) ** 2) / 2 / sigma**2)
        expected = (mass @ y) / mass.sum()
        assert found == pytest.approx(expected, abs=1e-8)
    slope, _ = log_evidence_slopes(Gaussian(sigma), r.prior.double(), torch.from_numpy(M)[:, None])
    tweedie = M + sigma**2 * slope[:, 0].numpy()  # as the loss sees it
    np.testing.assert_allclose(curve(r), tweedie, rtol=0, atol=1e-5)  # sigma of the loss is float32


def test_median_is_half_of_the_posterior():
    r = Rebalancer(MIXTURE, 0.7, likelihood="laplace")
    y = np.linspace(-8, 8, 160_001)
    density = MIXTURE.log_prob(torch.from_numpy(y)[:, None]).exp().numpy()
    for m, found in zip(M[::7], curve(r, M[::7]), strict=True):
        mass = np.cumsum(density * np.exp(-np.abs(y - m) / 0.7))
        assert found == pytest.approx(y[np.searchsorted(mass, mass[-1] / 2)], abs=2e-3)


def test_what_changes_nothing():
    x = np.linspace(-9, 9, 20)
    for r in (
        Rebalancer(Flat(), 2.0),
        Rebalancer(Flat()),
        Rebalancer(Flat()).fit(x, x),
        Rebalancer(MIXTURE, 0.0),
        Rebalancer(MIXTURE, 1.0, strength=0.0),
        *(Rebalancer(prior, 2.0, power=0.0) for prior in PRIORS.values()),
    ):
        np.testing.assert_array_equal(r(x), x)


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_normal_labels_are_stretched(strength):
    r = Rebalancer(NORMAL, 3.0, strength=strength)
    x = np.linspace(-9, 9, 10)
    shrink = 1 - strength + strength * 4 / (4 + 9)
    np.testing.assert_allclose(r(x), 1 + (x - 1) / shrink, rtol=1e-6)


# 1e-4: Newton's method takes 0.1% of the other dimension's noise instead of none
@pytest.mark.parametrize(
    ("sigma", "error"), [(1.5, 1e-10), ([0.5, 2.0], 1e-10), ([0.0, 1.0], 1e-4)]
)
def test_normal_labels_are_stretched_in_several_dimensions(sigma, error):
    V = np.array([[2.0, 0.8], [0.8, 1.0]])
    S = np.diag(np.broadcast_to(sigma, 2) ** 2.0)
    prior = GaussianMixture(torch.ones(1, dtype=torch.float64), [[1.0, 0.0]], V[None])
    x = RNG.normal(size=(40, 2))
    expected = np.array([1.0, 0.0]) + (x - [1.0, 0.0]) @ ((V + S) @ np.linalg.inv(V)).T
    np.testing.assert_allclose(Rebalancer(prior, sigma)(x), expected, atol=error)


@pytest.mark.parametrize("strength", [1.0, 0.6])
def test_newton_inverts_in_several_dimensions(strength, monkeypatch):
    """In less than 30 steps."""
    monkeypatch.setattr("losses.posthoc.inverse.STEPS", 29)
    rng = np.random.default_rng(1)
    A = rng.normal(size=(4, 5, 5))
    covariances = A @ A.swapaxes(1, 2) + np.eye(5)
    prior = GaussianMixture(torch.ones(4).double(), 4 * rng.normal(size=(4, 5)), covariances)
    gaussian = Gaussian(torch.tensor(1.5, dtype=torch.float64))
    x = torch.from_numpy(4 * rng.normal(size=(300, 5)))
    m = Rebalancer(prior, 1.5, strength=strength)(x)
    slope, _ = log_evidence_slopes(gaussian, prior, m)
    T = m + strength * 1.5**2 * slope
    torch.testing.assert_close(T, x, rtol=0, atol=1e-10)


def test_newton_stops_for_each_sample(monkeypatch):
    """144 dimensions, 16 components that overlap: the slowest sample takes 14 to 17 steps."""
    rng, steps = np.random.default_rng(0), []
    root = rng.normal(size=(16, 144, 144)) / 12
    covariances = root @ root.swapaxes(1, 2) + 0.1 * np.eye(144)
    prior = GaussianMixture(np.full(16, 1 / 16), 0.05 * rng.normal(size=(16, 144)), covariances)
    gaussian = Gaussian(torch.tensor(1.0, dtype=torch.float64))

    def T(m):
        log_q = prior.log_evidence(gaussian, m.requires_grad_(), m)
        return m.detach() + torch.autograd.grad(log_q.sum(), m)[0]

    def counted(given, var, m):
        steps.append(len(m))
        return posterior(given, var, m)

    monkeypatch.setattr("losses.posthoc.inverse.posterior", counted)
    labels, own = rng.normal(size=(64, 144)), root[rng.integers(16, size=64)]
    x = T(torch.from_numpy(np.einsum("nde,ne->nd", own, labels) + rng.normal(size=(64, 144))))
    torch.testing.assert_close(T(Rebalancer(prior, 1.0)(x)), x, rtol=0, atol=1e-10)
    assert sum(steps) / 64 < 8


@pytest.mark.parametrize("prior", [BINS, MIXTURE, NORMAL])
def test_one_sigma_per_sample(prior):
    x, sigma = np.linspace(-1, 3, 12), np.tile([0.5, 1.0, 1.5], 4)
    found = Rebalancer(prior, 1.0)(x, sigma)
    expected = [
        float(Rebalancer(prior, s)(np.array([v]))[0]) for v, s in zip(x, sigma, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_mixture_of_labels_with_an_end_stays_near_them():
    """Exponential labels: the mixture has mass below 0, where its T^-1 is very steep."""
    rng = np.random.default_rng(1)
    y = rng.exponential(size=4000)
    pred = curve(Rebalancer(y, 0.7), y + 0.7 * rng.normal(size=4000))
    pred += 0.1 * rng.normal(size=4000)  # some below all T
    held, rest = slice(500), slice(500, None)
    prior = GaussianMixture.fit(y, 8)
    found = Rebalancer(prior).fit(pred[held], y[held])(pred[rest])
    expected = Rebalancer(y).fit(pred[held], y[held])(pred[rest])
    assert found.min() > -0.25
    error, of_labels = (np.abs(m - y[rest]).mean() for m in (found, expected))
    assert error == pytest.approx(of_labels, rel=0.05)  # it reaches below 0


def test_priors_of_one_distribution_agree():
    """20,000 samples: a statistical error of about 0.02 where labels are frequent."""
    labels = MIXTURE.means[:, 0].numpy()[(RNG.random(20_000) < 0.2).astype(int)]
    labels = labels + RNG.normal(size=20_000) * np.where(labels == 4, 0.5, 1.0)
    x = np.linspace(-1, 4, 20)
    expected = Rebalancer(MIXTURE, 1.0)(x)
    for prior, error in ((BINS, 1e-3), (labels, 0.15), (gaussian_kde(labels, 0.1), 0.15)):
        np.testing.assert_allclose(Rebalancer(prior, 1.0)(x), expected, rtol=0, atol=error)


def noisy(n, sigma, prior=MIXTURE, seed=0, balanced=False):
    """Held-out samples of Theorem 1: x holds m = y + noise, the model predicts T(m)."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.2, 4 + 0.5 * rng.normal(size=n), rng.normal(size=n))
    y = rng.uniform(-2, 5, n) if balanced else y
    m = y + sigma * rng.normal(size=n)
    return curve(Rebalancer(prior, sigma), m), y


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("prior", ["mixture", "labels"])
@pytest.mark.parametrize("balanced", [False, True])
def test_sigma_is_found(sigma, prior, balanced):
    """Also on a held-out set whose labels are uniform."""
    found = Rebalancer(PRIORS[prior]).fit(*noisy(2000, sigma, balanced=balanced)).sigma
    assert float(found) == pytest.approx(sigma, rel=0.1)


def test_sigma_is_found_in_two_dimensions():
    rng = np.random.default_rng(0)
    prior = GaussianMixture([0.7, 0.3], [[0.0, 0.0], [3.0, 3.0]], np.stack([np.eye(2)] * 2))
    y = np.where(rng.random((1000, 1)) < 0.3, 3.0, 0.0) + rng.normal(size=(1000, 2))
    m = torch.from_numpy(y + 0.8 * rng.normal(size=y.shape))
    slope, _ = log_evidence_slopes(Gaussian(torch.tensor(0.8).double()), prior.double(), m)
    r = Rebalancer(prior).fit((m + 0.64 * slope).numpy(), y, train_labels=y)
    assert float(r.sigma) == pytest.approx(0.8, rel=0.1)
    assert (r(m) <= torch.from_numpy(y.max(0))).all()


def test_agrees_with_a_retrained_loss():
    """y = 2 x + noise with labels drawn from N(0, 1): least squares shrinks the slope, GAI and the
    Rebalancer restore it."""
    from losses import GAI

    rng = np.random.default_rng(0)
    y = rng.normal(size=20_000)
    x = (y + 1.0 * rng.normal(size=y.size)) / 2
    prior = GaussianMixture([1.0], [[0.0]], [[[float(y.var())]]])
    inputs, target = (torch.from_numpy(a)[:, None] for a in (x, y))
    slope = torch.tensor([[0.5]], dtype=torch.float64, requires_grad=True)
    loss = GAI(prior, sigma=1.0)
    optimizer = torch.optim.LBFGS([slope], line_search_fn="strong_wolfe", max_iter=50)

    def closure():
        optimizer.zero_grad()
        value = loss(inputs @ slope, target)
        value.backward()
        return value

    optimizer.step(closure)
    least_squares = (x @ y) / (x @ x)
    balanced = np.polyfit(x, Rebalancer(prior, 1.0)(least_squares * x), 1)[0]
    assert balanced == pytest.approx(slope.item(), rel=0.01)
    assert least_squares < 0.6 * balanced


def test_isotonic_and_blend():
    pred, y = noisy(3000, 1.0)
    test_pred, test_y = noisy(2000, 1.0, seed=1, balanced=True)

    def error(r):
        return np.mean((r(test_pred) - test_y) ** 2)

    found = {
        m: error(Rebalancer(LABELS, method=m, criterion="brmse").fit(pred, y))
        for m in ("theorem", "isotonic", "blend")
    }
    before = np.mean((test_pred - test_y) ** 2)
    assert all(value < before for value in found.values())
    assert found["blend"] < 1.05 * min(found.values())
    r = Rebalancer(LABELS, method="isotonic").fit(pred, y)
    assert (np.diff(r(np.sort(test_pred))) >= 0).all()
    half = r.at(strength=0.5)(test_pred)
    np.testing.assert_allclose(half, (r(test_pred) + test_pred) / 2, atol=1e-9)


def test_dials_move_from_plain_to_balanced():
    pred, _ = noisy(1000, 1.0)
    for prior in (BINS, MIXTURE, LABELS):
        r = Rebalancer(prior, 1.0)
        for dial in ("strength", "power"):
            moved = [np.abs(r.at(**{dial: v})(pred) - pred).mean() for v in (0, 0.25, 0.5, 0.75, 1)]
            assert (np.diff(moved) > 0).all()
            assert moved[0] == pytest.approx(0, abs=0.05)  # labels end somewhere


def test_histogram_and_classes_are_divided_by_the_frequencies():
    logits = torch.from_numpy(RNG.normal(size=(50, 4)))
    edges = [0.0, 1.0, 2.0, 3.0, 4.0]
    likelihood = Histogram(edges, point="mean")
    weights = torch.tensor([0.6, 0.3, 0.1, 0.0])
    prior = Bins([0.5, 1.5, 2.5, 3.5], weights)
    found = Rebalancer(prior, power=0.5, likelihood=likelihood)(logits)
    p = logits.softmax(-1) / torch.tensor([0.6, 0.3, 0.1, 0.1]) ** 0.5
    expected = (p / p.sum(-1, keepdim=True)) @ torch.tensor([0.5, 1.5, 2.5, 3.5]).double()
    torch.testing.assert_close(found, expected)
    classes = Rebalancer(Classes([3.0, 1.0, 1.0, 1.0]), likelihood=Categorical(4))(logits)
    assert torch.equal(classes, (logits - torch.tensor([3.0, 1, 1, 1]).log()).argmax(-1))


def test_is_a_module():
    x = torch.linspace(-1, 4, 30, dtype=torch.float64)
    for prior, method in ((BINS, "theorem"), (LABELS, "theorem"), (LABELS, "isotonic")):
        r = Rebalancer(prior, method=method).fit(*noisy(500, 1.0))
        other = Rebalancer(prior, method=method)
        other.load_state_dict(r.state_dict())
        torch.testing.assert_close(other(x), r(x))
        torch.testing.assert_close(other.at(strength=0.5)(x), r.at(strength=0.5)(x))
        np.testing.assert_allclose(r(x.numpy()), r(x).numpy(), atol=1e-12)
        assert r(x.float()).dtype == torch.float32
        if method == "theorem":
            assert torch.autograd.gradcheck(r, (x[3:-3].clone().requires_grad_(),))
        exported = torch.export.export(r, (x,), strict=False).module()
        torch.testing.assert_close(exported(x), r(x))
        compiled = torch.compile(r, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), r(x))
    prior = GaussianMixture(
        [0.5, 0.5], [[0.0, 0.0], [3.0, 1.0]], np.stack([np.eye(2)] * 2)
    ).double()
    r, x = Rebalancer(prior, 1.0), torch.randn(5, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(r, (x.clone().requires_grad_(),))
    maps = torch.rand(2, 1, 4, 4)
    assert Rebalancer(BINS, 1.0)(maps).shape == maps.shape
    assert copy.deepcopy(r)(x).shape == x.shape
    whole = torch.arange(4)  # integers become floats
    torch.testing.assert_close(Rebalancer(BINS, 1.0)(whole), Rebalancer(BINS, 1.0)(whole.float()))
    bounded, x = Rebalancer(BINS, 0.5, bound=1.0), torch.linspace(-1, 4, 9).double()
    exported = torch.export.export(bounded, (x,), strict=False).module()
    torch.testing.assert_close(exported(x), bounded(x))


def test_results_stay_in_the_label_range():
    far = np.array([-50.0, 50.0])
    for prior in (BINS, LABELS, Bins([0.0, 1.0], [1.0, 1.0])):
        r = Rebalancer(prior, 2.0)
        assert r(far).tolist() == r.ends.tolist()
        assert r(torch.from_numpy(far)).tolist() == r.ends.tolist()
        np.testing.assert_allclose(r(far, np.full(2, 2.0)), r.ends.numpy())
    r = Rebalancer(MIXTURE, 1.0).fit(*noisy(100, 1.0), train_labels=LABELS)
    assert r(far).tolist() == [LABELS.min(), LABELS.max()]
    with pytest.raises(ValueError, match="leave the label range by more than bound=1"):
        Rebalancer(BINS, 2.0, bound=1.0)(far)
    assert Rebalancer(BINS, 0.5, bound=1.0)(np.array([-5.0]))[0] < -6


@pytest.mark.parametrize("method", ["theorem", "isotonic", "blend"])
def test_bad_input(method):
    pred, y = noisy(200, 1.0)
    wrong = pred.copy()
    wrong[3] = np.nan
    r = Rebalancer(LABELS, method=method)
    with pytest.raises(ValueError, match=r"pred must be finite; 1 of 200"):
        r.fit(wrong, y)
    with pytest.raises(ValueError, match=r"target must be finite; 1 of 200"):
        r.fit(pred, wrong)
    with pytest.raises(ValueError, match="outside the prior"):
        r.fit(pred, 100 * y)
    with pytest.raises(ValueError, match="one shape"):
        r.fit(pred[:9], y)
    with pytest.raises(RuntimeError, match="call fit"):
        r(pred)
    with pytest.warns(UserWarning, match="10 held-out samples"):
        assert np.isfinite(r.fit(pred[:10], y[:10])(pred)).all()
    with pytest.raises(ValueError, match="Predictions must be finite"):
        r(wrong)
    for useless in (np.zeros(200), -pred):
        with pytest.warns(UserWarning, match="Balancing cannot help"):
            r.fit(useless, y)
        np.testing.assert_allclose(r(pred), pred)
    with pytest.warns(UserWarning, match="outside the prior's range"):
        r.fit(pred, np.where(np.arange(200) < 30, 9.0, y))
