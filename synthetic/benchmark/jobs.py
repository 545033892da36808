"""One method on one family of columns with all seeds: a unit of work whose result is one file.

The file's name contains a hash of all settings that the numbers depend on, so an interrupted
benchmark resumes with the jobs that are missing.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter

from datasets.io.arrays import read_npz
from datasets.io.files import atomic_write
from losses import Rebalancer
from synthetic.benchmark.methods import EXTRAS, METHODS, TRUE_NOISE, WARM, mixture, takes_batch
from synthetic.benchmark.problems import Problem, make_splits
from synthetic.benchmark.program import Runs, State, Training

VERSION = 3  # of the training program; increase it with every change that moves numbers


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
