"""Tasks that a process of its own can import."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def threads(tell: Callable[[Any], None]) -> tuple[str, int]:
    tell("begun")
    return os.environ["OMP_NUM_THREADS"], torch.get_num_threads()


def fail(tell: Callable[[Any], None]) -> None:
    raise ValueError("of a task")


def end(tell: Callable[[Any], None]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write_slowly(path: Path, tell: Callable[[Any], None]) -> None:
    path.write_text("half")
    try:
        time.sleep(60)
    finally:
        path.unlink()


def fail_after(path: Path, tell: Callable[[Any], None]) -> None:
    """Fail as soon as another task has begun to write."""
    while not path.exists():
        time.sleep(0.01)
    fail(tell)
