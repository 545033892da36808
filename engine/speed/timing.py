"""Two ways of doing one thing, timed in turns, so that a busy machine slows both alike.

The median over the rounds of their ratio counts; turns are shorter than a scheduler's slice where
a step is, so that most are not interrupted. Memory is the peak of what one step allocates
beyond its inputs: the sum over the profiler's allocation events on a CPU, the allocator's own peak
on CUDA.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from torch import Tensor
from torch.profiler import profile

Loss = Callable[[Tensor, Tensor], Tensor]


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
        steps = [self.step(loss, *data) for loss in (ours, theirs)]
        row = self.take_turns(name, steps[0], against, steps[1], **goal)
        if "memory_goal" in goal:
            a, b = (self.peak(step) for step in steps)
            row.memory = a / b
        return row

    def take_turns(
        self,
        name: str,
        ours: Callable[[], None],
        against: str,
        theirs: Callable[[], None],
        runs: int = 1,
        **goal,
    ) -> Row:
        """Time two steps in turns; ours does the work of so many `runs` of theirs."""
        steps = ours, theirs
        repeats = [self._repeats(step) for step in steps]
        turns, end = [], time.perf_counter() + self.budget
        while len(turns) < self.rounds or time.perf_counter() < end:
            a, b = (self._time(step, n) for step, n in zip(steps, repeats, strict=True))
            turns.append((a / runs, b))
        a, b = (statistics.median(side) * 1e3 for side in zip(*turns, strict=True))
        return Row(name, against, a, b, statistics.median(a / b for a, b in turns), **goal)

    def step(self, loss: Loss, pred: Tensor, target: Tensor) -> Callable[[], None]:
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

    def peak(self, step: Callable[[], object]) -> int:
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
