"""Run stages of very different length one after the other, with a bar and the time left."""

import contextlib
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

TRUST = 60.0  # seconds of work after which the measured speed counts as much as the expected one
Reach = Callable[..., None]  # reach(share of the stage that is done, found=False)


class Stage(NamedTuple):
    """Some minutes of work that reports its progress and returns its table's JSON, if any."""

    name: str
    seconds: float  # expected
    work: Callable[[Reach], Path | None]


def expected_end(elapsed: float, done: float, total: float) -> float:
    """Return when all will be done, from expected seconds corrected by the measured speed."""
    return elapsed + (TRUST + elapsed) / (TRUST + done) * (total - done)


class TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"left {left(task)}")


def left(task: Task) -> str:
    return clock(max(task.fields["end"] - (task.elapsed or 0), 0))


def clock(seconds: float) -> str:
    """E.g. 1:05:09."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def run_stages(found: Sequence[Stage], log: Path, console: Console) -> dict[str, Path | None]:
    """Return {stage: the JSON of its table, or None} of the stages that succeeded.

    Their output goes to `log`. A stage that fails does not stop the others. The total of the bar is
    in expected seconds; results that are found do not count, so that they do not look like speed.
    """
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeLeft()
    quiet: Any = {"redirect_stdout": False, "redirect_stderr": False}
    bar = Progress(*columns, console=console, disable=not console.is_terminal, **quiet)
    total = sum(stage.seconds for stage in found)
    bar.add_task("reproduce", total=total, end=total)
    (task,) = bar.tasks
    succeeded: dict[str, Path | None] = {}

    def reach(share: float, found: bool = False) -> None:
        nonlocal before
        step, before = (share - before) * stage.seconds, share
        bar.update(task.id, total=(task.total or 0) - step if found else None)
        bar.update(task.id, advance=0 if found else step)
        end = expected_end(task.elapsed or 0, task.completed, task.total or 0)
        bar.update(task.id, end=end)

    log.parent.mkdir(parents=True, exist_ok=True)
    with bar, log.open("a", buffering=1) as file:
        for stage in found:
            start, before = time.monotonic(), 0.0
            bar.update(task.id, description=f"reproduce: {stage.name}")
            try:
                with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                    print(f"=== {stage.name}, {time.strftime('%Y-%m-%d %H:%M:%S')}")
                    succeeded[stage.name] = stage.work(reach)
                reach(1.0)
                took = clock(time.monotonic() - start)
                line = f"{stage.name}: done in {took}, about {left(task)} left"
            except Exception as error:
                traceback.print_exc(file=file)
                line = f"{stage.name}: FAILED, {type(error).__name__}: {error} (see {log})"
                reach(1.0, found=True)
            print_line(console, line)
    return succeeded


def print_line(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
