"""Tasks that a process of its own can import."""

import os
from collections.abc import Callable
from typing import Any

import torch


def threads(tell: Callable[[Any], None]) -> tuple[str, int]:
    tell("begun")
    return os.environ["OMP_NUM_THREADS"], torch.get_num_threads()


def fail(tell: Callable[[Any], None]) -> None:
    raise ValueError("of a task")
