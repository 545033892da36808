"""jiawei-ren/BalancedMSE: the losses of labels in one and in several dimensions.

N: samples; D: label dimensions.
"""

import contextlib
from pathlib import Path
from unittest import mock

import joblib
import numpy as np
import pandas
import torch
from torch import Tensor

from engine.training.build import fitted
from losses import BMC, BNI, GAI, Bins, GaussianMixture, WeightedLoss
from scripts.released import inputs
from scripts.released.clones import Clone
from scripts.released.inputs import Quantities, ages, noisy_losses, pair, stepped
from synthetic.benchmark.problems import Problem

MIXTURE = {
    "weights": np.array([0.2, 0.5, 0.3]),
    "means": np.array([[8.0], [31.0], [55.0]]),
    "variances": np.array([[[20.0]], [[90.0]], [[150.0]]]),
}


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


def losses(root: Path, work: Path) -> Quantities:
    """GAI, BMC and BNI: values and gradients for three noise scales."""
    theirs = Clone(root, "imdb-wiki-dir").load("balanaced_mse")
    file = str(work / "gmm.pkl")
    joblib.dump(MIXTURE, file)
    prior = GaussianMixture(*MIXTURE.values())
    centers, counts = np.unique(ages(), return_counts=True)
    weights = counts / counts.sum()
    bins = Bins(centers, weights)
    for name, ours, other in (
        ("GAI", lambda s: GAI(prior, s, True), lambda s: theirs.GAILoss(s, file)),
        ("BMC", lambda s: BMC(s, True), theirs.BMCLoss),
        ("BNI", lambda s: BNI(bins, s, True), lambda s: theirs.BNILoss(s, centers, weights)),
    ):
        title = f"{name}, {{}}, sigma 0.5, 1, 10"
        yield from noisy_losses(title, ours, other, pair(), (0.5, 1.0, 10.0))


def weighted_losses(root: Path, work: Path) -> Quantities:
    """The baselines' weighted errors."""
    theirs = Clone(root, "imdb-wiki-dir").load("loss")
    weight = torch.linspace(0.2, 3.0, 256)
    for error in ("mse", "l1", "huber", "focal_mse", "focal_l1"):
        baseline = WeightedLoss(error)  # pyright: ignore[reportArgumentType]
        function = getattr(theirs, f"weighted_{error}_loss")
        own = stepped(lambda p, t, b=baseline: b(p, t, weight), *pair())
        other = stepped(lambda p, t, f=function: f(p, t, weight[:, None]), *pair())
        yield f"weighted {error}, value and gradient", own, other


def fitted_mixture(root: Path, work: Path) -> Quantities:
    """GAI's mixture of eight components, fitted by their script to the same labels."""
    script = Clone(root, "imdb-wiki-dir").load("preprocess_gmm")
    frame = pandas.DataFrame({"age": ages(), "path": "", "split": "train"})
    frame.to_csv(work / "imdb_wiki.csv", index=False)
    batches = [(None, torch.from_numpy(ages()).float()[:, None], None)]  # images are not needed
    argv = ["preprocess_gmm", "--data_dir", str(work), "--workers", "0"]
    loader = mock.patch.object(script, "DataLoader", return_value=batches)
    with loader, mock.patch("sys.argv", argv), contextlib.chdir(work):
        script.prerpocess_gmm()
    own = fitted(inputs.official("imdb_wiki/gai").loss.prior, ages()[:, None].astype(float))
    sides = inputs.evidence(own, joblib.load(work / "gmm.pkl"), noise=10.0, top=120, nodes=481)
    yield "GAI, the fitted mixture: log-evidence at 0 to 120 years", *sides
