"""Tasks that a worker process can import."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def threads(report: Callable[[Any], None]) -> tuple[str, int]:
    report("started")
    return os.environ["OMP_NUM_THREADS"], torch.get_num_threads()


def wait(seconds: float, report: Callable[[Any], None]) -> float:
    report(os.getpid())
    time.sleep(seconds)
    return seconds


def fail(report: Callable[[Any], None]) -> None:
    raise ValueError("of a task")


class NotPicklable(Exception):
    def __init__(self, first: str, second: str):
        super().__init__(f"{first} {second}")


def fail_without_pickle(report: Callable[[Any], None]) -> None:
    raise NotPicklable("two", "words")


def end(report: Callable[[Any], None]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write_slowly(path: Path, report: Callable[[Any], None]) -> None:
    try:  # also a signal within the write leaves no file
        path.write_text("half")
        time.sleep(60)
    finally:
        path.unlink(missing_ok=True)


def fail_after(path: Path, report: Callable[[Any], None]) -> None:
    """Fail as soon as another task has begun to write."""
    while not path.exists():
        time.sleep(0.01)
    fail(report)
