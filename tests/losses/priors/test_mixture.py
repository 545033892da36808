"""Fitting, saving and loading the mixture."""

from functools import partial

import numpy as np
import pytest
import torch

from losses import GAI, GaussianMixture, Laplace
from tests.losses.pairs import D64, generator, mixture


def labels(n: int = 3000) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(-4, 0.5, n), rng.normal(3, 1.5, 2 * n)])


def ordered(prior: GaussianMixture) -> dict[str, np.ndarray]:
    order = prior.means[:, 0].argsort()
    names = ("weights", "means", "covariances")
    return {name: getattr(prior, name)[order].numpy().squeeze() for name in names}


def test_fit_finds_the_components():
    fit = ordered(GaussianMixture.fit(labels(), components=2))
    # 4 standard errors of 3,000 and 6,000 samples
    np.testing.assert_allclose(fit["weights"], [1 / 3, 2 / 3], atol=0.02)
    np.testing.assert_allclose(fit["means"], [-4, 3], atol=0.08)
    np.testing.assert_allclose(fit["covariances"], [0.25, 2.25], rtol=0.1)


def test_fit_in_several_dimensions():
    rng = np.random.default_rng(1)
    cov = np.array([[1.0, 0.5], [0.5, 2.0]])
    y = rng.multivariate_normal([1, -2], cov, 20_000)
    prior = GaussianMixture.fit(y, components=1)
    # 4 standard errors, sqrt(2 * 2^2 / 20,000) = 0.02 at most; one component is the sample's own
    np.testing.assert_allclose(prior.means[0], y.mean(0), atol=1e-6)
    np.testing.assert_allclose(prior.covariances[0], np.cov(y.T, bias=True), atol=1e-4)
    np.testing.assert_allclose(prior.covariances[0], cov, atol=0.08)


def test_weighted_fit_is_a_fit_of_repeated_labels():
    rng = np.random.default_rng(0)
    y = labels(300)
    counts = rng.integers(1, 9, len(y))
    weighted = ordered(GaussianMixture.fit(y, 2, sample_weight=counts))
    repeated = ordered(GaussianMixture.fit(np.repeat(y, counts), 2))
    for name in weighted:
        # 5e-3: draws hit every count to one in 100,000; EM stops within 1e-3, from other starts
        np.testing.assert_allclose(weighted[name], repeated[name], rtol=5e-3, atol=5e-3)


def test_seeds():
    y = labels(200)
    first, again, other = (GaussianMixture.fit(y, 5, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.means, again.means)
    assert not torch.equal(first.means, other.means)


def test_more_labels_than_samples():
    prior = GaussianMixture.fit(labels(3000), 2, max_samples=2000)
    np.testing.assert_allclose(ordered(prior)["means"], [-4, 3], atol=0.2)  # 4 standard errors


def test_equal_labels_are_regularised():
    prior = GaussianMixture.fit(np.full(50, 3.0), 1)
    assert torch.isfinite(GAI(prior, 1.0)(torch.zeros(2, 1), torch.full((2, 1), 3.0)))


def test_more_components_than_different_labels():
    """The paper's K = 512 on whole ages: some components coincide, without a warning."""
    prior = GaussianMixture.fit(np.repeat(np.arange(20.0), 5), 32)
    assert len(prior.weights) == 32
    assert torch.isfinite(prior.log_prob(torch.arange(20.0)[:, None])).all()


@pytest.mark.parametrize("dims", [1, 4])
def test_save_and_load(tmp_path, dims):
    prior, path = mixture(dims, D64), tmp_path / "prior.npz"
    prior.save(path)
    loaded = GaussianMixture.load(path)
    for name in ("weights", "means", "covariances"):
        # weights are normalised again: one rounding
        torch.testing.assert_close(getattr(loaded, name), getattr(prior, name), rtol=1e-15, atol=0)
    assert [p.name for p in tmp_path.iterdir()] == ["prior.npz"]  # no part is left behind
    given = torch.randn(2, 5, dims, dtype=D64)
    torch.testing.assert_close(GAI(path, 0.7)(*given), GAI(prior, 0.7)(*given))
    other = GaussianMixture(prior.weights, prior.means + 1, prior.covariances)
    other.load_state_dict(prior.state_dict())
    assert torch.equal(other.log_prob(given[0]), prior.log_prob(given[0]))


class Bomb:
    exploded = False

    def __reduce__(self):
        return (setattr, (Bomb, "exploded", True))


def test_a_pickle_is_refused_and_not_run(tmp_path):
    path = tmp_path / "prior.npz"
    bomb = np.empty(1, dtype=object)
    bomb[0] = Bomb()
    np.savez(path, weights=bomb, means=np.zeros((1, 1)), covariances=np.ones((1, 1, 1)))
    with pytest.raises(ValueError, match=r"is no mixture.*allow_pickle"):
        GaussianMixture.load(path)
    assert not Bomb.exploded


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no mixture at .*write one with prior.save"):
        GaussianMixture.load(tmp_path / "none.npz")
    path = tmp_path / "other.npz"
    np.savez(path, weights=np.ones(2))
    with pytest.raises(ValueError, match="expected an npz of weights, means, covariances"):
        GaussianMixture.load(path)
    for content in (b"not a zip file", path.read_bytes()[:-20]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is no mixture"):
            GaussianMixture.load(path)


def test_full_nll_in_many_dimensions():
    g = generator()
    draw = partial(torch.randn, generator=g, dtype=D64)
    labels = draw(400, 6) @ draw(6, 64)
    loss = GAI(GaussianMixture.fit(labels, 2), 0.5, full_nll=True)
    target = labels[:50].float()
    ours, exact = loss(target, target), loss.double()(target.double(), target.double())
    assert ours.item() == pytest.approx(exact.item(), abs=1e-3)  # 64 terms of float32 rounding


@pytest.mark.parametrize("ratio", [100.0, 3000, 1e6])
def test_a_mixture_much_wider_than_the_scale(ratio):
    """The gradient to the scale of a Laplace likelihood, against the asymptotic expansion
    integral = p + b^2 p'' for a density p that is smooth at the scale b."""
    prior = GaussianMixture([1.0], [[0.0]], [[[ratio**2]]])
    laplace = Laplace(1.0, True)
    pred = ratio * torch.tensor([[-1.5], [2.0], [2.5]])
    evidence = prior.log_evidence(laplace, pred, pred)
    (slope,) = torch.autograd.grad(evidence.sum(), laplace.scale)
    expected = (2 * ((pred / ratio) ** 2 - 1) / ratio**2).sum()
    # the next term of the expansion is of relative order 1 / ratio^2
    assert slope.item() == pytest.approx(expected.item(), rel=20 / ratio**2 + 1e-3)
