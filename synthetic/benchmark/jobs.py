"""Rows of the synthetic table, and jobs: a row on one family of columns with all seeds.

METHODS are the paper's rows, by the loss of a problem. EXTRAS are BNI, and Theorem 1 with a Laplace
likelihood (the paper's future work) and each prior. POSTHOC is Vanilla, balanced after training
(Job.rebalanced).

The result of a job is one file. Its name contains a hash of all settings that the numbers depend
on, so an interrupted benchmark resumes with the jobs that are missing.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from datasets.io.arrays import read_npz
from datasets.io.files import atomic_write
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
    Rebalancer,
    WeightedLoss,
)
from synthetic.benchmark.problems import Problem, make_splits
from synthetic.benchmark.program import Runs, State, Training

SAMPLES = 10_000  # of the true p_train, to which priors are fitted
COMPONENTS = {"normal": 1, "exponential": 64, "mvn": 1, "nonlinear": 1}
TRUE_NOISE, FIRST_GUESS = 1.0, 1.5
VERSION = 3  # of the training program; increase it with every change that moves numbers


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


@dataclass(frozen=True)
class Job:
    """Trains R = len(problems) x len(seeds) runs."""

    method: str
    problems: tuple[Problem, ...]
    seeds: tuple[int, ...]
    training: Training
    folder: str
    device: str = "cpu"

    @property
    def name(self) -> str:
        first = self.problems[0]
        return f"{first.name if len(self.problems) == 1 else first.family} / {self.method}"

    @property
    def path(self) -> Path:
        content = {**asdict(self), "version": VERSION, "torch": torch.__version__}
        content |= {"warm": True} if self.method in WARM else {}
        del content["folder"]
        key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
        slug = self.name.replace(" / ", "-").replace(" ", "_").replace("(", "").replace(")", "")
        return Path(self.folder) / "runs" / f"{slug}-{key}.npz"

    @property
    def cost(self) -> float:
        """Expected time in arbitrary units; long jobs start first."""
        step = 3 if takes_batch(self.method) else 1 if self.method == "Vanilla" else 2
        return self.training.epochs * step * len(self.problems)

    def run(self, report: Callable[[int], None]) -> None:
        """Train, log curves to TensorBoard, and write the file; `report` receives the epoch."""
        start = time.process_time()
        make_loss, warm = {**METHODS, **EXTRAS}[self.method], self.method in WARM
        runs = Runs(make_loss, self.problems, self.seeds, self.training, self.device, warm)
        curves = Path(self.folder) / "tensorboard" / self.path.stem
        with SummaryWriter(str(curves)) as writer:

            def log(epoch: int, state: State) -> None:
                report(epoch)
                for i, problem in enumerate(self.problems):
                    own = slice(i * len(self.seeds), (i + 1) * len(self.seeds))
                    for name in ("test_mse", "val_loss", "sigma"):
                        values = getattr(state, name.partition("_")[2] or name)[own]
                        writer.add_scalar(f"{name}/{problem.name}", values.mean(), epoch)

            state = runs.train(log)
        arrays = {field: values.cpu().numpy() for field, values in state._asdict().items()}
        with atomic_write(self.path) as file:
            np.savez(file, cpu_seconds=time.process_time() - start, **arrays)

    def result(self) -> dict[str, np.ndarray]:
        """Return loss, mse, sigma (P, S), weight (P, S, D, F), bias (P, S, D) and cpu_seconds ().

        P: problems; S: seeds.
        """
        shape = len(self.problems), len(self.seeds)
        found = read_npz(self.path, advice="Remove it and run the command again.")
        arrays = {key: found[key].reshape(*shape, *found[key].shape[1:]) for key in State._fields}
        return {**arrays, "cpu_seconds": found["cpu_seconds"]}

    def rebalanced(self) -> np.ndarray:
        """Return the test errors (P, S) of a finished job after `Rebalancer`, without training,
        with the prior and the sigma of GAI (true noise)."""
        result = self.result()
        errors = np.zeros_like(result["mse"])
        for i, j in np.ndindex(errors.shape):
            t, weight, bias = self.training, result["weight"][i, j], result["bias"][i, j]
            data = make_splits(self.problems[i], self.seeds[j], t.samples, t.held_out)
            pred = data["test"].x.numpy() @ weight.T + bias
            balanced = Rebalancer(mixture(self.problems[i]), TRUE_NOISE)(pred)
            errors[i, j] = np.square(balanced - data["test"].y.numpy()).mean()
        return errors
