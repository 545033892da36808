"""Parts of very different length, one after the other under one display, with the time left.

    left = scale * (expected seconds of the work ahead),   scale = seconds spent / seconds expected

What was found done counts neither as work nor as time, so that a resumed call is not too hopeful.
"""

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

TRUST = 60.0  # seconds of work after which our own speed counts as much as the expected one
TICK = 0.5  # seconds between two looks at the clock
Reach = Callable[..., None]  # Plan.reach


class Part(NamedTuple):
    """Some minutes of work, which says how far it is and returns its table's JSON, if any."""

    name: str
    seconds: float  # expected
    work: Callable[[Reach], Path | None]


class Plan:
    """Parts with their expected seconds, in order; where we are among them."""

    def __init__(self, seconds: Mapping[str, float], clock: Callable[[], float] = time.monotonic):
        self.seconds, self.clock = dict(seconds), clock
        self.behind = dict.fromkeys(seconds, 0.0)  # the share of each part that is behind us
        self.part = ""
        self.worked = self.spent = 0.0  # expected and true seconds of what this call has done
        self.since = clock()

    def begin(self, part: str) -> None:
        """A part starts; the one before is over, whether it came to its end or not."""
        if self.part:
            self.behind[self.part] = 1.0
        self.part, self.since = part, self.clock()

    def reach(self, share: float, found: bool = False) -> None:
        """The share of the part that is behind us; `found`: the last step was already done."""
        step, now = share - self.behind[self.part], self.clock()
        if not found:
            self.worked += step * self.seconds[self.part]
            self.spent += now - self.since
        self.behind[self.part], self.since = share, now

    def end(self) -> None:
        self.behind = dict.fromkeys(self.behind, 1.0)

    @property
    def scale(self) -> float:
        """True seconds per expected second."""
        return (TRUST + self.spent) / (TRUST + self.worked)

    def left(self) -> float:
        """Seconds until the end."""
        ahead = sum(s * (1 - self.behind[part]) for part, s in self.seconds.items())
        return max(self.scale * ahead - (self.clock() - self.since if ahead else 0), 0.0)

    def done(self) -> float:
        """The share of all the work that is behind us, as far as the clock can tell."""
        total = sum(self.seconds.values())
        return 1 - self.left() / (self.scale * total) if total else 1.0


@contextlib.contextmanager
def displayed(plan: Plan, title: str, console: Console) -> Iterator[None]:
    """A bar on a terminal, moved by the clock between reports; elsewhere only the parts' lines."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left {task.fields[left]}"),
    )
    over = threading.Event()
    progress = Progress(
        *columns,
        console=console,
        disable=not console.is_terminal,
        redirect_stdout=False,  # the parts' output goes to the log
        redirect_stderr=False,
    )
    with progress as bar:
        task = bar.add_task(title, total=1.0, left="")

        def move() -> None:
            while not over.wait(TICK):
                name = f"{title}: {plan.part}" if plan.part else title
                bar.update(task, completed=plan.done(), left=clock(plan.left()), description=name)

        mover = threading.Thread(target=move, daemon=True)
        mover.start()
        try:
            yield
        finally:
            over.set()
            mover.join()
            bar.update(task, completed=plan.done(), left=clock(plan.left()), description=title)


def clock(seconds: float) -> str:
    """E.g. 1:05:09."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def work_through(made: Iterable[Part], plan: Plan, log: Path, say: Callable[[str], None]) -> dict:
    """{part: the JSON of its table, or None}, for those that came to their end.

    What the parts print goes to `log`. A part that fails does not keep the others from running.
    """
    done: dict[str, Path | None] = {}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", buffering=1) as file:
        for part in made:
            plan.begin(part.name)
            start = time.monotonic()
            try:
                with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                    print(f"=== {part.name}, {time.strftime('%Y-%m-%d %H:%M:%S')}")
                    done[part.name] = part.work(plan.reach)
            except Exception as error:
                traceback.print_exc(file=file)
                say(f"{part.name}: FAILED, {type(error).__name__}: {error} (see {log})")
                continue
            plan.reach(1.0)
            took = clock(time.monotonic() - start)
            say(f"{part.name}: done in {took}, about {clock(plan.left())} left")
    plan.end()
    return done
