"""Tasks in processes of their own."""

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.test_follow import running

from engine import ROOT
from engine.processes.pool import side_by_side
from tests.engine import tiny_tasks


def test_results_reports_and_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    told: list = []
    tasks: list[Callable] = [tiny_tasks.threads, tiny_tasks.threads]
    results = side_by_side(tasks, 2, lambda i, what: told.append((i, what)))
    assert results == [("1", 1)] * 2  # of NumPy and of torch
    for i in range(2):
        assert [what for task, what in told if task == i] == ["begun", None]
    assert os.environ["OMP_NUM_THREADS"] == "2"


@pytest.mark.usefixtures("forked_workers")
def test_an_error_in_a_task_is_raised():
    with pytest.raises(ValueError, match="of a task"):
        side_by_side([tiny_tasks.fail], 1, lambda i, what: None)


@pytest.mark.usefixtures("forked_workers")
def test_a_worker_that_is_killed_is_told():
    with pytest.raises(RuntimeError, match="ended with code -9"):
        side_by_side([tiny_tasks.end], 1, lambda i, what: None)


@pytest.mark.usefixtures("forked_workers")
def test_what_is_half_written_is_removed_when_another_task_fails(tmp_path: Path):
    """A worker is asked to stop, and has the time to tidy up."""
    path = tmp_path / "half"
    tasks: list[Callable] = [
        functools.partial(tiny_tasks.write_slowly, path),
        functools.partial(tiny_tasks.fail_after, path),
    ]
    with pytest.raises(ValueError, match="of a task"):
        side_by_side(tasks, 2, lambda i, what: None)
    assert not path.exists()


def test_workers_end_with_their_caller_while_they_import():
    """kill -9 a moment after the workers were started, long before torch is imported."""
    code = (
        "from engine.processes.pool import side_by_side\n"
        "from tests.engine import tiny_tasks\n"
        "import subprocess; start = subprocess.Popen\n"
        "class Told(start):\n"
        "    def __init__(self, *a, **k): super().__init__(*a, **k); print(self.pid, flush=True)\n"
        "subprocess.Popen = Told\n"
        "side_by_side([tiny_tasks.threads] * 2, 2, lambda i, what: None)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert caller.stdout is not None
    workers = [int(caller.stdout.readline()) for _ in range(2)]
    time.sleep(0.3)
    caller.kill()
    caller.wait()
    caller.stdout.close()
    until = time.monotonic() + 3  # far less than their imports take, on busy cores
    while any(map(running, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(running, workers))
