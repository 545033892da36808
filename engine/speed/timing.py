"""Compare two ways of doing the same thing: time in interleaved repeats, and peak memory."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.profiler import profile
from torch.utils.benchmark import Timer

Step = Callable[[], Any]
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Row:
    """One comparison; the ratios are ours / the alternative's, so less than 1 is better."""

    name: str
    against: str
    ours_ms: float
    other_ms: float
    time: float
    memory: float | None = None


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
        self, name: str, ours: Step, against: str, other: Step | float, times: int = 1
    ) -> Row:
        """Time `ours`, one call of which does the work of `times` calls of `other`.

        `other` may be seconds measured before.
        """
        turns, end = [], time.perf_counter() + self.budget
        while len(turns) < self.rounds and (not turns or time.perf_counter() < end):
            a = self.seconds(ours) / times
            turns.append((a, self.seconds(other) if callable(other) else other))
        a, b = (1e3 * statistics.median(side) for side in zip(*turns, strict=True))
        return Row(name, against, a, b, statistics.median(a / b for a, b in turns))

    def seconds(self, step: Step) -> float:
        timer = Timer("step()", globals={"step": step}, num_threads=self.threads)
        return timer.blocked_autorange(min_run_time=0.01).median


def once(step: Step) -> float:
    """Return the seconds of one call, for steps too long to repeat."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def backward(loss: Loss, pred: Tensor, target: Tensor) -> Step:
    """Return a step that computes the loss and its gradients."""
    pred = pred.clone().requires_grad_()

    def step() -> None:
        pred.grad = None
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


def markdown(report: Mapping[str, Any]) -> str:
    """Return the rows of all groups as the table of docs/speed.md."""
    lines = ["| group | what | against | ours, ms | other, ms | time | memory |"]
    lines += ["|---|---|---|---:|---:|---:|---:|"]
    for group, content in report.items():
        for row in content["rows"]:
            cells = [group, row["name"], row["against"]]
            cells += [f"{row['ours_ms']:.3g}", f"{row['other_ms']:.3g}"]
            cells += [ratio(row["time"]), ratio(row["memory"])]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{1 / value:.1f}x less" if value < 1 else f"{value:.2f}x"
