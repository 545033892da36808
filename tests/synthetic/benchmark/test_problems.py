"""Laws of the synthetic problems, and the closed form of least squares against a large sample."""

import pytest
import torch

from synthetic.benchmark.problems import NONLINEAR, RELATIONS, TABLE, Problem, make_splits

by_problem = pytest.mark.parametrize("problem", [*TABLE, *NONLINEAR], ids=lambda p: p.name)


def sample(problem: Problem, count: int, seed: int) -> torch.Tensor:
    return problem.sample(count, torch.Generator().manual_seed(seed))


@by_problem
def test_samples_are_in_range_and_repeat_with_the_seed(problem: Problem):
    low, high = problem.range
    y = sample(problem, 2000, 3)
    assert y.shape == (2000, problem.dims)
    assert ((y >= low) & (y <= high)).all()
    assert torch.equal(y, sample(problem, 2000, 3))
    assert not torch.equal(y, sample(problem, 2000, 4))


@pytest.mark.parametrize(
    ("family", "skew", "mean", "variance"),
    [
        ("normal", "high", 5.0, 0.25),
        ("normal", "low", 5.0, 1.0),
        ("exponential", "high", 0.5, 0.25),
        ("exponential", "low", 1.0, 1.0),
        ("mvn", "moderate", 0.0, 0.5625),
    ],
)
def test_labels_have_the_moments_of_the_protocol(family, skew, mean, variance):
    y = sample(Problem(family, skew), 200_000, 0).double()
    # 200,000 samples: standard errors below 0.003 and 0.008; cutting to the range moves less
    torch.testing.assert_close(y.mean(0), torch.full_like(y[0], mean), rtol=0, atol=0.02)
    torch.testing.assert_close(y.var(0), torch.full_like(y[0], variance), rtol=0.04, atol=0)
    if family == "mvn":
        assert abs(float(torch.corrcoef(y.T)[0, 1]) - 0.5) < 0.02


# The other problems have too few samples far from the mean; their formula is the same.
WIDE = [p for p in TABLE if p.family == "exponential" or p.detail == "low"]


@pytest.mark.parametrize("problem", [*WIDE, *NONLINEAR], ids=lambda p: p.name)
def test_the_density_is_that_of_the_samples(problem: Problem):
    """E_{y ~ p}[1 / p(y)] over a box is the volume of the box."""
    y, (low, high) = sample(problem, 100_000, 1), problem.range
    first, last = low + 0.3 * (high - low), low + 0.7 * (high - low)
    if problem.family == "exponential":
        first, last = 0.2, 1.2
    inside = ((y > first) & (y < last)).all(-1)
    estimate = (inside / problem.density(y)).mean()
    volume = (last - first) ** problem.dims
    assert float(estimate) == pytest.approx(volume, rel=0.1)  # importance weights up to 100


@pytest.mark.parametrize("name", RELATIONS)
def test_relations_are_inverted_and_increase(name: str):
    y = torch.linspace(-3, 13, 400, dtype=torch.float64)
    function, inverse = RELATIONS[name]
    assert (inverse(y).diff() > 0).all()
    torch.testing.assert_close(function(inverse(y)), y, rtol=0, atol=1e-9)


@by_problem
def test_training_pairs_are_oracle_plus_unit_noise(problem: Problem):
    splits = make_splits(problem, seed=5, train=20_000, held_out=500)
    mixing = torch.randn(2, 2, generator=torch.Generator().manual_seed(5)) * 0.01

    def clean(x: torch.Tensor) -> torch.Tensor:
        """f(x) is the last feature of a nonlinear problem, and x itself of a linear one."""
        return torch.linalg.solve(mixing, x.T).T if problem.family == "mvn" else x[:, -1:]

    noise = (splits["train"].y - clean(splits["train"].x)).double()
    # 20,000 samples of N(0, 1): four standard errors
    assert float(noise.mean()) == pytest.approx(0, abs=0.03)
    assert float(noise.std()) == pytest.approx(1, abs=0.03)
    test = splits["test"]
    torch.testing.assert_close(clean(test.x), test.y, rtol=1e-3, atol=1e-3)  # a 1% matrix is solved


@pytest.mark.parametrize("problem", TABLE, ids=lambda p: p.name)
def test_least_squares_agrees_with_its_closed_form(problem: Problem):
    splits = make_splits(problem, seed=2, train=200_000, held_out=50_000)

    def design(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.double() * 100, torch.ones(len(x), 1).double()], -1)

    train, test = splits["train"], splits["test"]
    solution = torch.linalg.lstsq(design(train.x), train.y.double()).solution
    error = float((design(test.x) @ solution - test.y).square().mean())
    assert error == pytest.approx(problem.least_squares_mse(), rel=0.03)  # both samples are finite
