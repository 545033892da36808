"""Rows of the synthetic table: the loss of each method on a problem.

METHODS are the paper's. EXTRAS are BNI, and Theorem 1 with a Laplace likelihood (the paper's future
work) and each prior. POSTHOC is Vanilla, balanced after training (jobs.Job.rebalanced).
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import nn

from losses import (
    BMC,
    BNI,
    GAI,
    BalancedLoss,
    Batch,
    Bins,
    Flat,
    Gaussian,
    GaussianMixture,
    Laplace,
    WeightedLoss,
)
from synthetic.benchmark.problems import Problem

SAMPLES = 10_000  # of the true p_train, to which priors are fitted
COMPONENTS = {"normal": 1, "exponential": 64, "mvn": 1, "nonlinear": 1}
TRUE_NOISE, FIRST_GUESS = 1.0, 1.5


@cache
def mixture(problem: Problem) -> GaussianMixture:
    """Return the label prior of GAI."""
    return GaussianMixture.fit(_labels(problem), COMPONENTS[problem.family], seed=0)


@cache
def bins(problem: Problem) -> Bins:
    """Return the label prior of BNI: 100 bins over the range."""
    low, high = problem.range
    edges = torch.linspace(low, high, 101, dtype=torch.float64)
    counts = torch.histogram(_labels(problem)[:, 0].double(), edges).hist
    return Bins((edges[1:] + edges[:-1]) / 2, counts + 1e-9)  # no bin is dropped, so priors stack


def _labels(problem: Problem) -> torch.Tensor:
    return problem.sample(SAMPLES, torch.Generator().manual_seed(0))


METHODS: dict[str, Callable[[Problem], nn.Module]] = {
    "Vanilla": lambda p: BalancedLoss(Gaussian(), Flat()),
    "Reweight": lambda p: WeightedLoss("mse", normalise=True),
    "GAI (true noise)": lambda p: GAI(mixture(p), TRUE_NOISE),
    "BMC (true noise)": lambda p: BMC(TRUE_NOISE),
    "GAI": lambda p: GAI(mixture(p), FIRST_GUESS, learn_sigma=True),
    "BMC": lambda p: BMC(FIRST_GUESS, learn_sigma=True),
}
EXTRAS: dict[str, Callable[[Problem], nn.Module]] = {
    "BNI (true noise)": lambda p: BNI(bins(p), TRUE_NOISE),
    "BNI": lambda p: BNI(bins(p), FIRST_GUESS, learn_sigma=True),
    "Balanced L1 (mixture)": lambda p: BalancedLoss(Laplace(FIRST_GUESS, True), mixture(p)),
    "Balanced L1 (batch)": lambda p: BalancedLoss(Laplace(FIRST_GUESS, True), Batch()),
    "Balanced L1 (bins)": lambda p: BalancedLoss(Laplace(FIRST_GUESS, True), bins(p)),
}
# Far outside the labels the two terms of a Laplace likelihood cancel, and so does the gradient. So
# these rows start from the least-squares line.
WARM = ("Balanced L1 (mixture)", "Balanced L1 (batch)", "Balanced L1 (bins)")
POSTHOC = "Vanilla + post-hoc"
RUNS_IN_CACHE = 15  # with a batch prior


def defined(method: str, problem: Problem) -> bool:
    """Whether the table has this cell. The extras are for one-dimensional labels; the mixture with
    64 normal-Laplace densities would take longer than all other rows."""
    if method == "Balanced L1 (mixture)":
        return problem.family == "normal"
    return problem.dims == 1 or method in METHODS


def takes_batch(method: str) -> bool:
    """Whether the method's prior is the batch: B x B numbers per run."""
    return "BMC" in method or "batch" in method


def trained_together(
    method: str, problems: Sequence[Problem], seeds: int
) -> list[tuple[Problem, ...]]:
    """Group the columns into programs. The tensors of a batch prior are large: only RUNS_IN_CACHE
    runs fit the processor's cache."""
    most = max(1, RUNS_IN_CACHE // seeds) if takes_batch(method) else len(problems)
    return [tuple(problems[i : i + most]) for i in range(0, len(problems), most)]
