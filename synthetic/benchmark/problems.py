"""Columns of the synthetic table: imbalanced labels, noise, and an invertible relation.

A training pair is sampled backwards: y ~ p_train, noise eps ~ N(0, I), x = f^-1(y - eps). So
y = f(x) + eps, and the labels have exactly the distribution p_train. Test labels are uniform on the
range and have no noise.

n: samples; D: label dimensions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Exponential, MultivariateNormal, Normal

SKEWS = ("high", "moderate", "low")
NORMAL_STD = {"high": 0.5, "moderate": 0.75, "low": 1.0}
EXPONENTIAL_RATE = {"high": 2.0, "moderate": 1.5, "low": 1.0}
MVN_SCALE = {"high": 0.25, "moderate": 0.5625, "low": 1.0}
MVN_SHAPE = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
CENTER = 5.0  # of the one-dimensional label range [0, 10] and of its normal distributions


def _power(x: Tensor, exponent: float) -> Tensor:
    """sign(x) |x|^exponent."""
    return x.sign() * x.abs() ** exponent


RELATIONS = {  # y = f(x), and its inverse on all real y
    "cubic": (lambda x: CENTER + x**3, lambda y: _power(y - CENTER, 1 / 3)),
    "exponential": (lambda x: CENTER + torch.sinh(x), lambda y: torch.asinh(y - CENTER)),
    "root": (lambda x: CENTER + 2 * _power(x, 0.5), lambda y: _power((y - CENTER) / 2, 2)),
    "logarithmic": (lambda x: CENTER + 2 * torch.asinh(x), lambda y: torch.sinh((y - CENTER) / 2)),
}


@dataclass(frozen=True)
class Problem:
    """One column. `family` is normal, exponential, mvn or nonlinear (with moderately skewed normal
    labels); `detail` is its skew or nonlinear relation."""

    family: str
    detail: str

    @property
    def name(self) -> str:
        return f"{self.family}_{self.detail}"

    @property
    def dims(self) -> int:
        return 2 if self.family == "mvn" else 1

    @property
    def range(self) -> tuple[float, float]:
        return (-5.0, 5.0) if self.family == "mvn" else (0.0, 10.0)

    @property
    def labels(self) -> Distribution:
        """Return p_train(y) before the cut to the range."""
        if self.family == "mvn":
            return MultivariateNormal(torch.zeros(2), MVN_SCALE[self.detail] * MVN_SHAPE)
        if self.family == "exponential":
            return Exponential(torch.tensor(EXPONENTIAL_RATE[self.detail]))
        skew = "moderate" if self.family == "nonlinear" else self.detail
        return Normal(torch.tensor(CENTER), torch.tensor(NORMAL_STD[skew]))

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample labels (n, D) from p_train, rejecting those outside the range."""
        low, high = self.range
        kept = torch.empty(0, self.dims)
        while len(kept) < count:
            y = self._sample(count, generator)
            kept = torch.cat([kept, y[((y >= low) & (y <= high)).all(-1)]])
        return kept[:count]

    def _sample(self, count: int, generator: torch.Generator) -> Tensor:
        if isinstance(p := self.labels, MultivariateNormal):
            return torch.randn(count, 2, generator=generator) @ p.scale_tril.T + p.loc
        if isinstance(p, Exponential):
            return torch.empty(count, 1).exponential_(float(p.rate), generator=generator)
        assert isinstance(p, Normal)
        return torch.randn(count, 1, generator=generator) * p.scale + p.loc

    def density(self, y: Tensor) -> Tensor:
        """Return p_train(y) before the cut to the range: (n, D) -> (n,)."""
        y = y if self.dims > 1 else y[..., 0]
        return self.labels.log_prob(y).exp()

    def features(self, x: Tensor) -> Tensor:
        """Return the inputs of the linear regressor: x, and also f(x) for a nonlinear relation."""
        if self.family != "nonlinear":
            return x
        return torch.cat([x, RELATIONS[self.detail][0](x)], -1)

    def inverse(self, y: Tensor, mixing: Tensor) -> Tensor:
        """Return x = f^-1(y): y, A y in two dimensions, or that of the nonlinear relation."""
        if self.family == "mvn":
            return y @ mixing.T
        return y if self.family != "nonlinear" else RELATIONS[self.detail][1](y)

    def least_squares_mse(self) -> float:
        """Return the test error of least squares (the Vanilla row) in the population limit.

        Regressing y on x = y - eps shrinks by C (C + I)^-1 towards the label mean, so the error at
        a test label is (C + I)^-1 (y - mean).
        """
        low, high = self.range
        if isinstance(p := self.labels, MultivariateNormal):
            shrink = torch.linalg.inv(p.covariance_matrix + torch.eye(2))
            return float((high - low) ** 2 / 12 * (shrink @ shrink).trace() / 2)
        mean, var = float(p.mean), float(p.variance)
        bias = ((low + high) / 2 - mean) ** 2
        return (bias + (high - low) ** 2 / 12) / (var + 1) ** 2


TABLE = tuple(Problem(f, skew) for f in ("normal", "exponential", "mvn") for skew in SKEWS)
NONLINEAR = tuple(Problem("nonlinear", relation) for relation in RELATIONS)


class Split(NamedTuple):
    """inputs (n, F), targets (n, D), true densities of the targets under p_train (n,)."""

    x: Tensor
    y: Tensor
    density: Tensor


def make_splits(problem: Problem, seed: int, train: int, held_out: int) -> dict[str, Split]:
    """Sample train and val pairs from p_train with noise, and uniform test pairs without."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(2, 2, generator=generator) * 0.01
    low, high = problem.range
    splits = {}
    for name, count in {"train": train, "val": held_out, "test": held_out}.items():
        if name == "test":
            clean = y = torch.rand(count, problem.dims, generator=generator) * (high - low) + low
        else:
            y = problem.sample(count, generator)
            clean = y - torch.randn(count, problem.dims, generator=generator)
        x = problem.features(problem.inverse(clean, mixing))
        splits[name] = Split(x, y, problem.density(y))
    return splits
