"""Compare two ways of doing the same thing: time in interleaved repeats, and peak memory."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.profiler import profile
from torch.utils.benchmark import Timer

from engine.tables.table import markdown

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
