"""The columns of the synthetic table: laws of the data, and the closed form against a large
sample.
"""

import pytest
import torch

from synthetic.benchmark.problems import NONLINEAR, RELATIONS, TABLE, Problem, make_splits

EVERY = [*TABLE, *NONLINEAR]
by_name = pytest.mark.parametrize("problem", EVERY, ids=lambda p: p.name)


@by_name
def test_samples_stay_in_the_range_and_repeat_with_the_seed(problem: Problem):
    low, high = problem.range
    draws = [problem.sample(2000, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    assert draws[0].shape == (2000, problem.dims)
    assert (draws[0] >= low).all()
    assert (draws[0] <= high).all()
    torch.testing.assert_close(draws[0], draws[1], rtol=0, atol=0)
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize(
    ("name", "mean", "variance"),
    [
        ("normal_high", 5.0, 0.25),
        ("normal_low", 5.0, 1.0),
        ("exponential_high", 0.5, 0.25),
        ("exponential_low", 1.0, 1.0),
        ("mvn_moderate", 0.0, 0.5625),
    ],
)
def test_labels_have_the_moments_of_the_protocol(name: str, mean: float, variance: float):
    problem = next(p for p in TABLE if p.name == name)
    y = problem.sample(200_000, torch.Generator().manual_seed(0)).double()
    # 200,000 draws: standard errors below 0.003 and 0.008; cutting to the range moves less
    torch.testing.assert_close(
        y.mean(0), torch.full((problem.dims,), mean).double(), rtol=0, atol=0.02
    )
    torch.testing.assert_close(
        y.var(0), torch.full((problem.dims,), variance).double(), rtol=0.04, atol=0
    )
    if problem.dims == 2:
        correlation = torch.corrcoef(y.T)[0, 1]
        assert abs(float(correlation) - 0.5) < 0.02


@by_name
def test_the_density_is_that_of_the_samples(problem: Problem):
    y = problem.sample(100_000, torch.Generator().manual_seed(1))
    low, high = problem.range
    # E_{y ~ p}[1 / p(y)] = volume of the range where p has mass; over a box inside it is exact
    inside = ((y > low + 0.3 * (high - low)) & (y < low + 0.7 * (high - low))).all(-1)
    if problem.family == "exponential":
        inside = ((y > 0.2) & (y < 1.2)).all(-1)
        volume = 1.0
    else:
        volume = (0.4 * (high - low)) ** problem.dims
    if problem.name in ("mvn_high", "normal_high", "normal_moderate", "mvn_moderate"):
        return  # too few samples far from the mean for this estimate; their formula is the same
    estimate = (inside / problem.density(y)).mean()
    assert float(estimate) == pytest.approx(volume, rel=0.1)  # importance weights up to 100


@pytest.mark.parametrize("name", RELATIONS)
def test_relations_are_inverted_and_increase(name: str):
    y = torch.linspace(-3, 13, 400, dtype=torch.float64)
    x = RELATIONS[name].inverse(y)
    assert (x.diff() > 0).all()
    torch.testing.assert_close(RELATIONS[name].function(x), y, rtol=0, atol=1e-9)


@by_name
def test_training_pairs_are_oracle_plus_unit_noise(problem: Problem):
    splits = make_splits(problem, seed=5, train=20_000, held_out=500)
    generator = torch.Generator().manual_seed(5)
    mixing = torch.randn(2, 2, generator=generator) * 0.01
    x = splits["train"].x
    # f(x) is the last feature of a nonlinear problem, and x itself of a linear one
    clean = torch.linalg.solve(mixing, x.T).T if problem.family == "mvn" else x[:, -1:]
    noise = (splits["train"].y - clean).double()
    # 20,000 draws of N(0, 1): four standard errors
    assert float(noise.mean()) == pytest.approx(0, abs=0.03)
    assert float(noise.std()) == pytest.approx(1, abs=0.03)
    test = splits["test"]
    clean = torch.linalg.solve(mixing, test.x.T).T if problem.dims == 2 else test.x[:, -1:]
    torch.testing.assert_close(clean, test.y, rtol=1e-3, atol=1e-3)  # solving with a 1% matrix


@pytest.mark.parametrize("problem", TABLE, ids=lambda p: p.name)
def test_least_squares_meets_its_closed_form(problem: Problem):
    splits = make_splits(problem, seed=2, train=200_000, held_out=50_000)
    ones = torch.ones(200_000, 1, dtype=torch.float64)
    design = torch.cat([splits["train"].x.double() * 100, ones], -1)
    solution = torch.linalg.lstsq(design, splits["train"].y.double()).solution
    test = splits["test"]
    pred = torch.cat([test.x.double() * 100, ones[:50_000]], -1) @ solution
    error = float((pred - test.y).square().mean())
    assert error == pytest.approx(problem.least_squares_mse(), rel=0.03)  # both samples are finite
