"""jiawei-ren/BalancedMSE, synthetic_benchmark: losses of labels in several dimensions."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from losses import BMC, GAI, GaussianMixture, WeightedLoss
from scripts.released.age import FLOAT32, stepped
from scripts.released.clones import Clone
from scripts.released.lines import Lines
from synthetic.benchmark.problems import Problem

SIGMAS = (0.5, 1.0, 3.0)
CANCELLED = (
    1e-4  # of a gradient to sigma, which near its zero is a difference of sums 40 times larger
)


def rows(dims: int, count: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions and targets (N, D)."""
    generator = torch.Generator().manual_seed(dims)
    target = torch.randn(count, dims, generator=generator) * torch.arange(1, dims + 1)
    return target + torch.randn(count, dims, generator=generator), target


def mixture(dims: int, components: int = 3) -> dict[str, np.ndarray]:
    """In float32, as all of their losses' tensors must be."""
    rng = np.random.default_rng(dims)
    factors = rng.normal(size=(components, dims, dims))
    made = {
        "weights": rng.dirichlet(np.ones(components)),
        "means": rng.normal(size=(components, dims)),
        "variances": factors @ factors.transpose(0, 2, 1) + 0.2 * np.eye(dims),
    }
    return {key: value.astype(np.float32) for key, value in made.items()}


def several_dimensions(root: Path | None, work: Path, lines: Lines) -> None:
    """GAI and BMC in 2 and 5 dimensions: value and both gradients."""
    clone = Clone(root, "synthetic_benchmark")
    theirs = clone.load("loss")
    for dims in (2, 5):
        given = mixture(dims)
        prior = GaussianMixture(*(given[key] for key in ("weights", "means", "variances")))
        pairs: dict[str, tuple[Callable, Callable]] = {
            "GAI": (lambda s, p=prior: GAI(p, s, True), lambda s, g=given: theirs.GAILossMD(s, g)),
            "BMC": (lambda s: BMC(s, True), theirs.BMCLossMD),
        }
        for name, (ours, released_loss) in pairs.items():
            sides: list[list] = [[], []]
            for sigma in SIGMAS:
                own = ours(sigma)
                sides[0].append(stepped(own, *rows(dims), own.likelihood.sigma))
                with clone.running():
                    other = released_loss(sigma)
                    sides[1].append(stepped(other, *rows(dims), other.noise_sigma))
            for part, what in enumerate(("value", "gradient to pred", "gradient to sigma")):
                mine, their = ([row[part] for row in side] for side in sides)
                title = f"{name} in {dims} dimensions, {what}, sigma 0.5, 1, 3"
                lines.add(title, mine, their, CANCELLED if part == 2 else FLOAT32)


def reweighting(root: Path | None, work: Path, lines: Lines) -> None:
    """The synthetic baseline: weights 1 / p_train(y), which sum to one in the batch."""
    clone = Clone(root, "synthetic_benchmark")
    theirs = clone.load("loss")
    for family in ("normal", "exponential", "mvn"):
        problem = Problem(family, "low")
        target = problem.sample(256, torch.Generator().manual_seed(0))
        pred = target + torch.randn(target.shape, generator=torch.Generator().manual_seed(1))
        weight = 1 / problem.density(target)
        baseline = WeightedLoss("mse", normalise=True)
        own = stepped(lambda p, t, b=baseline, w=weight: b(p, t, w), pred, target, None)
        with clone.running():
            other = stepped(theirs.ReweightL2(problem.labels), pred, target, None)
        lines.add(f"re-weighting, {family} labels, value and gradient", own[:2], other[:2], FLOAT32)


CHECKS = (several_dimensions, reweighting)
