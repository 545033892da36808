"""The benchmark as a list of jobs: one method on one family of columns, all seeds at once.

Jobs run side by side, one thread each. A finished job is a file, so that an interrupted benchmark
goes on where it was; its name is a hash of all that the numbers depend on.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter

from datasets.io.arrays import read_npz
from datasets.io.files import atomic_write, writable
from engine.processes.pool import side_by_side
from synthetic.benchmark.methods import EXTRAS, METHODS, WARM, takes_batch
from synthetic.benchmark.problems import Problem
from synthetic.benchmark.program import Runs, State, Training

VERSION = 2  # of the training program: a change that moves numbers counts it up
FIELDS = ("loss", "mse", "weight", "bias", "sigma")


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
        where = self.problems[0].name if len(self.problems) == 1 else self.problems[0].family
        return f"{where} / {self.method}"

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
        """Roughly how long it takes, to start long jobs first."""
        step = 3 if takes_batch(self.method) else 1 if self.method == "Vanilla" else 2
        return self.training.epochs * step * len(self.problems)

    def run(self, report: Callable[[int], None]) -> None:
        """Train, with curves for TensorBoard on the way, and write the file."""
        start = time.process_time()
        make_loss, warm = {**METHODS, **EXTRAS}[self.method], self.method in WARM
        runs = Runs(make_loss, self.problems, self.seeds, self.training, self.device, warm)
        curves = Path(self.folder) / "tensorboard" / self.path.stem
        with SummaryWriter(str(curves)) as writer:

            def note(epoch: int, state: State) -> None:
                report(epoch)
                for i, problem in enumerate(self.problems):
                    own = slice(i * len(self.seeds), (i + 1) * len(self.seeds))
                    writer.add_scalar(f"test_mse/{problem.name}", state.mse[own].mean(), epoch)
                    writer.add_scalar(f"val_loss/{problem.name}", state.loss[own].mean(), epoch)
                    writer.add_scalar(f"sigma/{problem.name}", state.sigma[own].mean(), epoch)

            state = runs.train(note)
        arrays = {field: getattr(state, field).cpu().numpy() for field in FIELDS}
        with atomic_write(self.path) as file:
            np.savez(file, cpu_seconds=time.process_time() - start, **arrays)

    def result(self) -> dict[str, np.ndarray]:
        """loss, mse, sigma (P, S), weight (P, S, D, F), bias (P, S, D): P problems, S seeds."""
        shape = len(self.problems), len(self.seeds)
        found = read_npz(self.path)
        return {field: found[field].reshape(*shape, *found[field].shape[1:]) for field in FIELDS}

    def cpu_seconds(self) -> float:
        return float(read_npz(self.path)["cpu_seconds"])

    def finished(self) -> bool:
        """Its file is there and whole; a damaged one is removed, to be made again."""
        if not self.path.is_file():
            return False
        try:
            self.result()
            self.cpu_seconds()
        except (ValueError, KeyError) as error:
            print(f"{self.name}: made again. {error}", file=sys.stderr)
            self.path.unlink()
        return self.path.is_file()


def run_all(
    jobs: Iterable[Job], workers: int, fresh: bool, report: Callable[[Job, int | None], None]
) -> None:
    """Run what is not finished; `report(job, epoch)` on the way, with None when the job is done."""
    jobs = sorted(jobs, key=lambda job: -job.cost)
    for job in jobs:
        if fresh:
            job.path.unlink(missing_ok=True)
        elif job.finished():
            report(job, None)
    open_jobs = [job for job in jobs if not job.path.is_file()]
    for folder in {job.path.parent for job in open_jobs}:
        writable(folder)
    side_by_side([job.run for job in open_jobs], workers, lambda i, at: report(open_jobs[i], at))
