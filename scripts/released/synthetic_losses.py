"""jiawei-ren/BalancedMSE, synthetic_benchmark: losses of labels in several dimensions."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from losses import BMC, GAI, GaussianMixture, WeightedLoss
from scripts.released.clones import Clone
from scripts.released.inputs import Quantities, noisy_losses, stepped
from synthetic.benchmark.problems import Problem


def rows(dims: int, count: int = 200) -> tuple[Tensor, Tensor]:
    """Return predictions and targets (N, D)."""
    generator = torch.Generator().manual_seed(dims)
    target = torch.randn(count, dims, generator=generator) * torch.arange(1, dims + 1)
    return target + torch.randn(count, dims, generator=generator), target


def mixture(dims: int, components: int = 3) -> dict[str, np.ndarray]:
    """Return a mixture in float32, which all tensors of their losses must be."""
    rng = np.random.default_rng(dims)
    factors = rng.normal(size=(components, dims, dims))
    made = {
        "weights": rng.dirichlet(np.ones(components)),
        "means": rng.normal(size=(components, dims)),
        "variances": factors @ factors.transpose(0, 2, 1) + 0.2 * np.eye(dims),
    }
    return {key: value.astype(np.float32) for key, value in made.items()}


def several_dimensions(root: Path, work: Path) -> Quantities:
    """GAI and BMC in 2 and 5 dimensions: value and both gradients."""
    theirs = Clone(root, "synthetic_benchmark").load("loss")
    for dims in (2, 5):
        given = mixture(dims)
        prior = GaussianMixture(*given.values())
        title = f"in {dims} dimensions, {{}}, sigma 0.5, 1, 3"
        for name, ours, other in (
            ("GAI", lambda s, p=prior: GAI(p, s, True), lambda s, g=given: theirs.GAILossMD(s, g)),
            ("BMC", lambda s: BMC(s, True), theirs.BMCLossMD),
        ):
            yield from noisy_losses(f"{name} {title}", ours, other, rows(dims), (0.5, 1.0, 3.0))


def reweighting(root: Path, work: Path) -> Quantities:
    """The synthetic baseline: weights 1 / p_train(y), which sum to one in the batch."""
    theirs = Clone(root, "synthetic_benchmark").load("loss")
    for family in ("normal", "exponential", "mvn"):
        problem = Problem(family, "low")
        target = problem.sample(256, torch.Generator().manual_seed(0))
        pred = target + torch.randn(target.shape, generator=torch.Generator().manual_seed(1))
        weight = 1 / problem.density(target)
        baseline = WeightedLoss("mse", normalise=True)
        own = stepped(lambda p, t, b=baseline, w=weight: b(p, t, w), pred, target)
        other = stepped(theirs.ReweightL2(problem.labels), pred, target)
        yield f"re-weighting, {family} labels, value and gradient", own, other
