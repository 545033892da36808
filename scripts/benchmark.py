"""Forward + backward time and peak memory of each loss against the textbook formula, same run.

Both sides of a comparison take turns, and the median over the rounds of their ratio counts, so
that a busy machine slows both alike; turns are shorter than a scheduler's slice where a step is, so
that most are not interrupted. Memory is the peak of what one step allocates beyond its
inputs: the sum over the profiler's allocation events on the CPU, the allocator's own peak on CUDA.
"""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# The scripts folder on the path would let scripts/synthetic.py hide the package synthetic/.
sys.path[0] = str(Path(__file__).resolve().parents[1])
os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler says nothing

import hydra  # noqa: E402
import torch  # noqa: E402
from omegaconf import DictConfig  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.distributions import MultivariateNormal  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.profiler import profile  # noqa: E402

from losses import BMC, BNI, GAI, Bins, GaussianMixture  # noqa: E402

Loss = Callable[[Tensor, Tensor], Tensor]
PIXELS = 8 * 114 * 152  # a batch of depth maps: 138,624 rows


# ---- the textbook formulas: Theorem 1 as it is written, times 2 sigma^2


def mse(pred: Tensor, target: Tensor) -> Tensor:
    return functional.mse_loss(pred, target)


def broadcast_atoms(centers: Tensor | None, weights: Tensor | None, sigma: Tensor) -> Loss:
    """BNI, or BMC without centers: every row with every label, (N, K, D)."""

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        c = target if centers is None else centers
        log_w = 0.0 if weights is None else weights.log()
        square = (pred[:, None] - c).square().sum(-1)  # (N, K)
        balance = torch.logsumexp(log_w - square / 2 / sigma**2, -1)
        rows = (pred - target).square().sum(-1) / 2 / sigma**2 + balance
        return rows.mean() * 2 * sigma.detach() ** 2

    return loss


def normal_mixture(prior: GaussianMixture, sigma: Tensor) -> Loss:
    """GAI through MultivariateNormal(mu_k, Sigma_k + sigma^2 I)."""

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        noise = sigma**2 * torch.eye(pred.shape[-1], device=pred.device)
        log_p = MultivariateNormal(prior.means, prior.covariances + noise).log_prob(pred[:, None])
        balance = torch.logsumexp(log_p + prior.weights.log(), -1)
        rows = (pred - target).square().sum(-1) / 2 / sigma**2 + balance
        return rows.mean() * 2 * sigma.detach() ** 2

    return loss


def broadcast_mixture(prior: GaussianMixture, sigma: Tensor) -> Loss:
    """GAI in one dimension without MultivariateNormal."""

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        variance = prior.covariances[:, 0, 0] + sigma**2
        log_p = -(pred - prior.means[:, 0]).square() / 2 / variance - variance.log() / 2
        balance = torch.logsumexp(log_p + prior.weights.log(), -1)
        rows = (pred - target).square()[:, 0] / 2 / sigma**2 + balance
        return rows.mean() * 2 * sigma.detach() ** 2

    return loss


def normal_batch(sigma: Tensor) -> Loss:
    """BMC as the paper's pseudo-code: a softmax over MultivariateNormal(pred, sigma^2 I)."""

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        noise = sigma**2 * torch.eye(pred.shape[-1], device=pred.device)
        logits = MultivariateNormal(pred[:, None], noise).log_prob(target[None])  # (N, N, D) inside
        labels = torch.arange(len(pred), device=pred.device)
        return functional.cross_entropy(logits, labels) * 2 * sigma.detach() ** 2

    return loss


# ---- measuring


@dataclass
class Row:
    """ours / theirs, in time and in memory; goals are bounds on them, None where there is none."""

    name: str
    against: str
    ours_ms: float
    theirs_ms: float
    time: float
    memory: float | None = None
    time_goal: float | None = None
    memory_goal: float | None = None


class Bench:
    def __init__(self, device: str, rounds: int, seconds: float, budget: float):
        self.device, self.rounds = torch.device(device), rounds
        self.seconds, self.budget = seconds, budget

    def compare(
        self, name: str, ours: Loss, against: str, theirs: Loss, data: tuple[Tensor, Tensor], **goal
    ) -> Row:
        """`time_goal`, `memory_goal`: the largest ratio ours / theirs that is good enough."""
        steps = [self._step(loss, *data) for loss in (ours, theirs)]
        repeats = [self._repeats(step) for step in steps]
        turns, end = [], time.perf_counter() + self.budget
        while len(turns) < self.rounds or time.perf_counter() < end:
            turns.append([self._time(step, n) for step, n in zip(steps, repeats, strict=True)])
        memory = None
        if "memory_goal" in goal:
            a, b = (self._peak(step) for step in steps)
            memory = a / b
        a, b = (statistics.median(side) * 1e3 for side in zip(*turns, strict=True))
        ratio = statistics.median(a / b for a, b in turns)
        return Row(name, against, a, b, ratio, memory, **goal)

    def _step(self, loss: Loss, pred: Tensor, target: Tensor) -> Callable[[], None]:
        pred = pred.clone().requires_grad_()

        def step() -> None:
            pred.grad = None
            loss(pred, target).backward()

        return step

    def _repeats(self, step: Callable[[], None]) -> int:
        self._time(step, 2)
        return max(1, round(self.seconds / self._time(step, 2)))

    def _time(self, step: Callable[[], None], repeats: int) -> float:
        self._wait()
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        self._wait()
        return (time.perf_counter() - start) / repeats

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _peak(self, step: Callable[[], None]) -> int:
        """Bytes allocated at most at one time, beyond what was there."""
        step()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            step()
            return torch.cuda.max_memory_allocated() - before
        with profile(profile_memory=True) as recorded:
            step()
        results: Any = recorded.profiler.kineto_results  # pyright: ignore
        events = [event for event in results.events() if event.name() == "[memory]"]
        now = most = 0
        for event in sorted(events, key=lambda event: event.start_ns()):
            now += event.nbytes()
            most = max(most, now)
        return most


# ---- what is compared


def losses(bench: Bench) -> list[Row]:
    g = torch.Generator().manual_seed(0)
    where = bench.device

    def batch(n: int, dims: int, low: float, high: float) -> tuple[Tensor, Tensor]:
        pred, target = low + (high - low) * torch.rand(2, n, dims, generator=g)
        return pred.to(where), target.to(where)

    def mixture(components: int, dims: int, spread: float) -> GaussianMixture:
        root = torch.randn(components, dims, dims, generator=g) / dims**0.5
        covariances = root @ root.mT + 0.1 * torch.eye(dims)
        means = spread * torch.rand(components, dims, generator=g)
        return GaussianMixture(torch.rand(components, generator=g) + 0.1, means, covariances)

    rows, one = [], torch.tensor(1.0, device=where)
    learned = torch.tensor(1.0, device=where, requires_grad=True)

    maps = batch(PIXELS, 1, 0.7, 10)
    centers, counts = torch.arange(0.05, 10, 0.1), torch.rand(100, generator=g) + 0.05
    bins, mix = Bins(centers, counts).to(where), mixture(16, 1, 10).to(where)
    many = {"time_goal": 1 / 10, "memory_goal": 1 / 10}
    for learn, sigma in ((False, one), (True, learned)):
        note = f"N = {PIXELS:,}{', sigma learned' if learn else ''}"
        textbook = broadcast_atoms(bins.centers[:, None], bins.weights, sigma)
        ours = BNI(bins, 1.0, learn).to(where)
        rows.append(
            bench.compare(f"BNI 100 bins, {note}", ours, "broadcast", textbook, maps, **many)
        )
        ours, name = GAI(mix, 1.0, learn).to(where), f"GAI 16 components, {note}"
        textbook = normal_mixture(mix, sigma)
        rows.append(bench.compare(name, ours, "MultivariateNormal", textbook, maps, **many))
        textbook = broadcast_mixture(mix, sigma)
        rows.append(bench.compare(name, ours, "broadcast", textbook, maps, memory_goal=None))

    poses, mix = batch(128, 216, -1, 1), mixture(16, 216, 1).to(where)
    for learn, sigma in ((False, one), (True, learned)):
        note = f"D = 216, N = 128{', sigma learned' if learn else ''}"
        ours, textbook = GAI(mix, 1.0, learn).to(where), normal_mixture(mix, sigma)
        name = f"GAI 16 components, {note}"
        rows.append(
            bench.compare(name, ours, "MultivariateNormal", textbook, poses, time_goal=1 / 15)
        )
        ours, textbook = BMC(1.0, learn).to(where), normal_batch(sigma)
        rows.append(
            bench.compare(
                f"BMC, {note}", ours, "MultivariateNormal", textbook, poses, time_goal=0.01
            )
        )
        textbook = broadcast_atoms(None, None, sigma)
        rows.append(bench.compare(f"BMC, {note}", ours, "broadcast", textbook, poses))

    small, mix = batch(256, 1, 0, 10), mixture(8, 1, 10).to(where)
    for learn in (False, True):
        note = f"N = 256, D = 1{', sigma learned' if learn else ''}"
        for name, ours in {
            "GAI 8 components": GAI(mix, 1.0, learn),
            "BMC": BMC(1.0, learn),
            "BNI 100 bins": BNI(bins, 1.0, learn),
        }.items():
            rows.append(
                bench.compare(
                    f"{name}, {note}", ours.to(where), "plain MSE", mse, small, time_goal=3.0
                )
            )
    return rows


SUITES: dict[str, Callable[[Bench], list[Row]]] = {"losses": losses}


# ---- reporting


def ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{1 / value:.1f}x less" if value < 1 else f"{value:.2f}x"


def verdict(reached: float | None, goal: float | None) -> str:
    if reached is None or goal is None:
        return ""
    return "[green]yes" if reached <= goal else "[red]no"


def table(title: str, rows: list[Row]) -> Table:
    columns = ["loss", "against", "ms", "textbook ms", "time", "goal", "", "memory", "goal", ""]
    shown = Table(*columns, title=title)
    for row in rows:
        shown.add_row(
            row.name,
            row.against,
            f"{row.ours_ms:.3g}",
            f"{row.theirs_ms:.3g}",
            *(ratio(row.time), ratio(row.time_goal), verdict(row.time, row.time_goal)),
            *(ratio(row.memory), ratio(row.memory_goal), verdict(row.memory, row.memory_goal)),
        )
    return shown


@hydra.main(version_base=None, config_path="../configs", config_name="benchmark")
def main(config: DictConfig) -> None:
    if config.suite != "all" and config.suite not in SUITES:
        raise SystemExit(f"suite is all or one of {', '.join(SUITES)}, got {config.suite}")
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    bench, console = Bench(config.device, config.rounds, config.seconds, config.budget), Console()
    suites = SUITES if config.suite == "all" else {config.suite: SUITES[config.suite]}
    report = {}
    for name, suite in suites.items():
        rows = suite(bench)
        report[name] = [asdict(row) for row in rows]
        console.print(table(f"{name}, {torch.get_num_threads()} threads", rows))
    report["meta"] = {
        "command": " ".join(sys.argv),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, {config.device}",
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    for folder in ["outputs", "results"] if config.publish else ["outputs"]:
        path = Path(folder, "benchmark.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
        console.print(f"written to {path}")


if __name__ == "__main__":
    main()
