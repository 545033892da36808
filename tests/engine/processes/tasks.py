"""Tasks of test_pool.py, whose workers import this file: without torch they start at once."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Report = Callable[[Any], None]


def threads(report: Report) -> tuple[str, int]:
    import torch

    report("started")
    return os.environ["OMP_NUM_THREADS"], torch.get_num_threads()


def wait(seconds: float, report: Report) -> float:
    report(os.getpid())
    time.sleep(seconds)
    return seconds


def write_slowly(path: Path, report: Report) -> None:
    try:  # also a signal within the write leaves no file
        path.write_text("half")
        time.sleep(60)
    finally:
        path.unlink(missing_ok=True)


def fail_after(path: Path, report: Report) -> None:
    """Fail as soon as another task has begun to write."""
    while not path.exists():
        time.sleep(0.01)
    raise ValueError("of a task")


class NotPicklable(Exception):
    def __init__(self, first: str, second: str):
        super().__init__(f"{first} {second}")


def fail_without_pickle(report: Report) -> None:
    raise NotPicklable("two", "words")


def end(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
