"""Densities integrate to one, over labels; that p_train(y | x) does is Theorem 1."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from losses import BalancedLoss, Bins, Histogram, Laplace
from tests.losses.pairs import CLASSES, D64, PAIRS, batch, likelihood, make, mixture

DISCRETE = ("Bins", "Batch", "Classes")
quick = settings(max_examples=25, deadline=None)


def axis(low: float, high: float, breaks: list[float], nodes: int = 12, cells: int = 60):
    """Gauss-Legendre nodes and weights on [low, high], in cells that end at the kinks."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    ends = np.unique([*np.linspace(low, high, cells + 1), *breaks])
    half, middle = np.diff(ends) / 2, (ends[1:] + ends[:-1]) / 2
    y = (middle[:, None] + half[:, None] * x).ravel()
    return torch.from_numpy(y), torch.from_numpy((half[:, None] * w).ravel())


# 1e-8: 12-point Gauss-Legendre in cells of half a scale has an error far below that, and beyond
# 30 scales even a Laplace tail holds less than 1e-13.
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", ["Gaussian", "Laplace", "Huber"])
def test_location_integrates_to_one(name, learn):
    one = likelihood(name, 1, D64, learn)
    kinks = [0.3, 0.3 - 0.8 * 1.3, 0.3 + 0.8 * 1.3]
    y, w = axis(-28, 28, kinks, cells=140)
    density = one.log_prob(y[:, None], torch.full((len(y), 1), 0.3, dtype=D64)).exp()
    assert (density @ w).item() == pytest.approx(1, abs=1e-8)


@quick
@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=8),
    st.floats(0.01, 20),
    st.lists(st.floats(0.1, 5), min_size=2, max_size=20),
)
def test_soft_targets_sum_to_one(labels, soft, widths):
    edges = torch.cumsum(torch.tensor([-10.0, *widths], dtype=D64), 0)
    q = Histogram(edges, soft=soft).soft_target(torch.tensor(labels, dtype=D64)[:, None])
    assert q.shape == (len(labels), len(widths))
    assert (q >= 0).all()
    # rounding of at most 20 terms
    torch.testing.assert_close(q.sum(-1), torch.ones(len(labels), dtype=D64), rtol=0, atol=1e-13)


# 1e-8, as above.
@pytest.mark.parametrize(
    ("pair", "at"),
    [
        *(("Gaussian Mixture 1", at) for at in (-2.0, 0.4, 3.0, 9.0)),
        *(("Laplace Mixture 1", at) for at in (-2.0, 0.4, 3.0)),  # constant evidence beyond
    ],
)
def test_theorem_1_continuous(pair, at):
    y, w = axis(-40, 40, [at], cells=400)
    rows = make(pair, full_nll=True).rows(torch.full_like(y, at)[:, None], y[:, None])
    assert ((-rows).exp() @ w).item() == pytest.approx(1, abs=1e-8)


# Over finitely many labels it is a sum; 1e-12: float64 rounding of a few terms.
@pytest.mark.parametrize(
    "pair",
    [p for p in PAIRS if p.split()[1] in DISCRETE and not p.startswith("Histogram")],
)
def test_theorem_1_discrete(pair):
    """All labels of the prior under one prediction."""
    loss, (pred, target) = make(pair, full_nll=True), batch(pair, 7)
    if "Batch" not in pair:
        atoms = torch.arange(CLASSES) if "Classes" in pair else loss.prior.centers
        target = atoms.to(D64)[:, None]
    if pair.startswith(("Laplace", "Huber", "OwnLaplace")):  # exact within the labels
        d = target.shape[-1]
        pred[:, :d] = pred[:, :d].clamp(target.amin(0), target.amax(0))
    rows = loss.rows(pred[:1].expand(len(target), -1), target)
    assert (-rows).exp().sum().item() == pytest.approx(1, abs=1e-12)


# 1e-9: Gauss-Legendre in cells of 0.05, the prediction's kink between two of them.
@pytest.mark.parametrize("scale", [0.05, 0.8, 12.0])
@pytest.mark.parametrize("at", [-2.0, 0.1, 3.2])
def test_normal_laplace_equals_quadrature(scale, at):
    prior = mixture(1, D64)
    loss = BalancedLoss(Laplace(torch.tensor(scale, dtype=D64)), prior)
    y, w = axis(-25, 25, [at], cells=1000)
    parts = zip(prior.weights.numpy(), prior.means.numpy(), prior.covariances.numpy(), strict=True)
    p = sum(share * stats.norm.pdf(y, m[0], v[0, 0] ** 0.5) for share, m, v in parts)
    numeric = float(w.numpy() @ (p * stats.laplace.pdf(y, at, scale)))
    pred = torch.tensor([[at]], dtype=D64)
    closed = loss.prior.log_evidence(loss.likelihood, pred, pred).exp().item()
    assert closed == pytest.approx(numeric, rel=1e-9)


@quick
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12), st.floats(0, 2))
def test_tempering(weights, power):
    """p_train^power, normalised: log-ratios scale by the power; 0 is uniform and 1 is p_train."""
    w = torch.tensor(weights, dtype=D64)
    tempered = Bins(torch.arange(len(w), dtype=D64), w, power).weights
    assert tempered.sum().item() == pytest.approx(1, abs=1e-12)
    logs, expected = tempered.log(), power * w.log()
    # 1e-12: a few roundings of logarithms below 10
    torch.testing.assert_close(logs - logs[0], expected - expected[0], rtol=1e-12, atol=1e-12)
