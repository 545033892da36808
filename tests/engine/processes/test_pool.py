"""Tasks in parallel processes, which end with their parent."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import ROOT
from engine.processes.pool import side_by_side
from tests.engine.processes.tasks import (
    end,
    fail_after,
    fail_without_pickle,
    threads,
    wait,
    write_slowly,
)

PARENT = """
import signal
from functools import partial
from pathlib import Path
from engine.processes.pool import side_by_side
from tests.engine.processes.tasks import wait, write_slowly

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    tasks = [partial(wait, 60), partial(wait, 60), partial(write_slowly, Path("unused"))]
    side_by_side(tasks, 2, lambda i, report: print(report, flush=True))
"""


def running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ignore(i: int, report: object) -> None:
    pass


def test_workers_report_and_have_one_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    reports: list = []
    results = side_by_side([threads] * 2, 2, lambda i, report: reports.append((i, report)))
    assert results == [("1", 1)] * 2  # of NumPy and of torch
    for i in range(2):
        assert [report for task, report in reports if task == i] == ["started", None]
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_results_are_in_the_order_of_the_tasks():
    tasks = [functools.partial(wait, seconds) for seconds in (0.4, 0.0, 0.1)]
    assert side_by_side(tasks, 2, ignore) == [0.4, 0.0, 0.1]


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        (fail_without_pickle, RuntimeError, "NotPicklable: two words"),
        (end, RuntimeError, "worker process was killed.*Run the same command again"),
    ],
)
def test_errors_are_raised(task: Callable, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        side_by_side([task], 1, ignore)


def test_temporary_files_are_removed_when_another_task_fails(tmp_path: Path):
    path, start = tmp_path / "half", time.monotonic()
    slow = functools.partial(write_slowly, path)
    with pytest.raises(ValueError, match=r"^of a task$"):
        side_by_side([slow, functools.partial(fail_after, path), slow], 2, ignore)
    assert not path.exists()
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(how: signal.Signals, tmp_path: Path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, str(script)], env=environment, **pipes) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(map(running, workers))
        parent.send_signal(how)
        until = time.monotonic() + 5
        while any(map(running, workers)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(map(running, workers))
        parent.wait(timeout=10)


def test_a_process_ends_if_its_parent_is_gone_already():
    parent = 1 if os.getpid() != 1 else 0
    code = f"import time; from engine.processes.pool import watch_parent; watch_parent({parent})"
    words = [sys.executable, "-c", f"{code}; time.sleep(60)"]
    assert subprocess.run(words, cwd=ROOT, timeout=30, check=False).returncode == 1
