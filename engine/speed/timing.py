"""Compare two ways of doing the same thing: time in interleaved repeats, and peak memory.

    losses       against their definition and plain MSE
    synthetic    the synthetic benchmark in one program, against one run at a time
    features     cached features, against the frozen backbone

N: samples; D: dimensions.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.profiler import profile
from torch.utils.benchmark import Timer
from torch.utils.data import DataLoader, TensorDataset

from engine import CONFIGS
from engine.runs.run import composed, first_stage, run
from engine.tables.table import markdown
from engine.training.build import make_fabric
from engine.training.loop import Loop
from losses import BMC, BNI, GAI, BalancedLoss, Bins, GaussianMixture, WeightedLoss
from synthetic.benchmark.jobs import METHODS, trained_together
from synthetic.benchmark.problems import TABLE, Problem, make_splits
from synthetic.benchmark.program import Runs, Training

Step = Callable[[], Any]
Loss = Callable[[Tensor, Tensor], Tensor]
Row = dict[str, Any]  # name, against, ours_ms, other_ms; time and memory are ours / the other's
HEAD = ["group", "what", "against", "ours, ms", "other, ms", "time", "memory"]


@dataclass(frozen=True)
class Compare:
    """Interleaves the two ways, so that a busy machine slows both alike.

    rounds: repeats of each way; the median ratio counts.
    budget: seconds after which no further round starts.
    """

    rounds: int
    budget: float
    threads: int

    def __call__(
        self,
        name: str,
        ours: Step,
        against: str,
        other: Step,
        times: int = 1,
        memory: bool = False,
    ) -> Row:
        """Time `ours`, one call of which does the work of `times` calls of `other`."""
        turns, end = [], time.perf_counter() + self.budget
        while len(turns) < self.rounds and (not turns or time.perf_counter() < end):
            turns.append((self.seconds(ours) / times, self.seconds(other)))
        a, b = (1e3 * statistics.median(side) for side in zip(*turns, strict=True))
        ratio = statistics.median(a / b for a, b in turns)
        row = {"name": name, "against": against, "ours_ms": a, "other_ms": b, "time": ratio}
        return {**row, "memory": peak(ours) / peak(other) if memory else None}

    def seconds(self, step: Step) -> float:
        timer = Timer("step()", globals={"step": step}, num_threads=self.threads)
        return timer.blocked_autorange(min_run_time=0.01).median


def backward(loss: Loss, pred: Tensor, target: Tensor) -> Step:
    """Return a step that computes the loss and its gradients."""
    pred = pred.clone().requires_grad_()
    learned = list(loss.parameters()) if isinstance(loss, nn.Module) else []

    def step() -> None:
        for tensor in (pred, *learned):
            tensor.grad = None
        loss(pred, target).backward()

    return step


def peak(step: Step) -> int:
    """Return the largest number of bytes that a call allocates at one time."""
    step()
    with profile(profile_memory=True) as recorded:
        step()
    results: Any = recorded.profiler.kineto_results  # pyright: ignore[reportOptionalMemberAccess]
    events = [event for event in results.events() if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def report(content: Mapping[str, Any]) -> str:
    """Return the rows of all groups as the table of docs/speed.md."""
    grid = [HEAD]
    for group, found in content.items():
        for row in found["rows"]:
            times = [f"{row[key]:.3g}" for key in ("ours_ms", "other_ms")]
            ratios = [factor(row[key]) for key in ("time", "memory")]
            grid.append([group, row["name"], row["against"], *times, *ratios])
    return markdown(grid)


def factor(value: float | None) -> str:
    if value is None:
        return ""
    return f"{1 / value:.1f}x less" if value < 1 else f"{value:.2f}x"


def losses(cfg: DictConfig, compare: Compare) -> Iterator[Row]:
    """Forward and backward of depth maps, body poses and a small batch."""
    g, device = torch.Generator().manual_seed(0), torch.device(cfg.device)

    def batch(n: int, dims: int, low: float, high: float) -> list[Tensor]:
        return [(low + (high - low) * torch.rand(n, dims, generator=g)).to(device) for _ in "pt"]

    def mixture(components: int, dims: int, spread: float) -> GaussianMixture:
        root = torch.randn(components, dims, dims, generator=g) / dims**0.5
        covariances = root @ root.mT + 0.1 * torch.eye(dims)
        means = spread * torch.rand(components, dims, generator=g)
        return GaussianMixture(torch.rand(components, generator=g) + 0.1, means, covariances)

    maps, poses, few = batch(cfg.pixels, 1, 0.7, 10), batch(128, 216, -1, 1), batch(256, 1, 0, 10)
    bins = Bins(torch.arange(0.05, 10, 0.1), torch.rand(100, generator=g) + 0.05)
    depth, pose, small = mixture(16, 1, 10), mixture(16, 216, 1), mixture(8, 1, 10)
    many, high, low = f"N = {cfg.pixels:,}, D = 1", "N = 128, D = 216", "N = 256, D = 1"
    for learn in (False, True):
        bni, bmc = BNI(bins, 1.0, learn), BMC(1.0, learn)
        for name, loss, data in (
            (f"BNI 100 bins, {many}", bni, maps),
            (f"GAI 16 components, {many}", GAI(depth, 1.0, learn), maps),
            (f"GAI 16 components, {high}", GAI(pose, 1.0, learn), poses),
            (f"BMC, {high}", bmc, poses),
            (f"GAI 8 components, {low}", GAI(small, 1.0, learn), few),
            (f"BMC, {low}", bmc, few),
            (f"BNI 100 bins, {low}", bni, few),
        ):
            title, loss = f"{name}, sigma learned" if learn else name, loss.to(device)
            others = {"plain MSE": mse_loss}
            if data is maps:
                others = {"definition": definition(loss), **others}
            for against, other in others.items():
                steps = backward(loss, *data), backward(other, *data)
                yield compare(title, steps[0], against, steps[1], memory=against == "definition")


def definition(loss: BalancedLoss) -> Callable[[Tensor, Tensor], Tensor]:
    """Theorem 1 term by term."""
    return lambda pred, target: loss.likelihood.unit * loss.rows(pred, target).mean()


def synthetic(cfg: DictConfig, compare: Compare) -> Iterator[Row]:
    """An epoch of all runs of a method in one program, against one run at a time."""
    settings, rows = OmegaConf.load(CONFIGS / "synthetic.yaml").training, []
    seeds, against = range(cfg.seeds), "one run at a time"
    for family in ("normal", "exponential", "mvn"):
        training = Training(**settings["mvn" if family == "mvn" else "linear"])
        columns = [problem for problem in TABLE if problem.family == family]
        for method, make_loss in METHODS.items():
            problems = trained_together(method, columns, len(seeds))[0]
            runs = len(problems) * len(seeds)
            ours = Runs(make_loss, problems, seeds, training).epoch
            other = single_run(make_loss, problems[0], training)
            row = compare(f"{family}, {method}, {runs} runs", ours, against, other, runs)
            rows.append(row)
            yield row
    ours, other = (sum(row[key] for row in rows) for key in ("ours_ms", "other_ms"))
    total = {"name": "an epoch of every column and method", "ours_ms": ours, "other_ms": other}
    yield {**rows[0], **total, "time": ours / other}


def single_run(
    make_loss: Callable[[Problem], nn.Module], problem: Problem, training: Training
) -> Step:
    """An epoch of one run with a DataLoader, one nn.Linear and one optimiser."""
    data = make_splits(problem, 0, training.samples, training.held_out)["train"]
    loader = DataLoader(TensorDataset(data.x, data.y, 1 / data.density), training.batch, True)
    linear, loss = nn.Linear(data.x.shape[-1], data.y.shape[-1]), make_loss(problem)
    parameters = [*linear.parameters(), *loss.parameters()]
    optimizer = getattr(torch.optim, training.optimizer)(parameters, lr=training.learning_rate)

    def epoch() -> None:
        for x, y, weight in loader:
            optimizer.zero_grad()
            loss(linear(x), y, weight if isinstance(loss, WeightedLoss) else None).backward()
            optimizer.step()

    return epoch


def features(cfg: DictConfig, compare: Compare) -> Iterator[Row]:
    """An epoch of stage 2 on cached features against one through the frozen backbone."""
    own = composed("train", [*cfg.overrides, f"trainer.epoch_size={cfg.images}"])
    stage1 = first_stage(own)
    if stage1 is None or own.features.mode != "cached":
        raise SystemExit("overrides: expected a stage-2 experiment and a preset that caches.")
    backbone = Path(run(stage1)["folder"]) / "checkpoints" / "best.pt"

    def epoch(mode: str, folder: Path) -> Step:
        changed = own.copy()
        with open_dict(changed):
            changed.log.every = 10**9
            changed.features = own.features if mode == "cached" else {"mode": "none"}
        loop = Loop(make_fabric(changed), changed, folder / mode, backbone)

        def step() -> None:
            loop.train_epoch()
            loop.epoch, loop.step = loop.epoch + 1, 0

        return step

    with tempfile.TemporaryDirectory() as folder:
        ours, other = (epoch(mode, Path(folder)) for mode in ("cached", "none"))
        yield compare(f"stage-2 epoch of {cfg.images} images", ours, "through the backbone", other)
