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
from tests.engine import tiny_tasks

PARENT = """
import sys
from functools import partial
from pathlib import Path
from engine.processes.pool import side_by_side
from tests.engine import tiny_tasks

if __name__ == "__main__":
    tasks = [partial(tiny_tasks.wait, 60)] * 2 + [partial(tiny_tasks.write_slowly, Path("unused"))]
    side_by_side(tasks, 2, lambda i, report: print(report, flush=True))
"""


def running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(processes: list[int], within: float = 5) -> bool:
    until = time.monotonic() + within
    while any(map(running, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(running, processes))


def ignore(i: int, report: object) -> None:
    pass


def test_workers_report_and_have_one_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    reports: list = []
    tasks: list[Callable] = [tiny_tasks.threads] * 2
    results = side_by_side(tasks, 2, lambda i, report: reports.append((i, report)))
    assert results == [("1", 1)] * 2  # of NumPy and of torch
    for i in range(2):
        assert [report for task, report in reports if task == i] == ["started", None]
    assert os.environ["OMP_NUM_THREADS"] == "2"


@pytest.mark.usefixtures("forked_workers")
def test_results_are_in_the_order_of_the_tasks():
    tasks = [functools.partial(tiny_tasks.wait, seconds) for seconds in (0.4, 0.0, 0.1)]
    assert side_by_side(tasks, 2, ignore) == [0.4, 0.0, 0.1]


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        (tiny_tasks.fail, ValueError, "^of a task$"),
        (tiny_tasks.fail_without_pickle, RuntimeError, "NotPicklable: two words"),
        (tiny_tasks.end, RuntimeError, "worker process was killed.*Run the same command again"),
    ],
    ids=["raised", "not picklable", "killed"],
)
def test_errors_are_raised(task: Callable, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        side_by_side([task], 1, ignore)


@pytest.mark.usefixtures("forked_workers")
def test_temporary_files_are_removed_when_another_task_fails(tmp_path: Path):
    path = tmp_path / "half"
    slow = functools.partial(tiny_tasks.write_slowly, path)
    tasks: list[Callable] = [slow, functools.partial(tiny_tasks.fail_after, path), slow]
    start = time.monotonic()
    with pytest.raises(ValueError, match="of a task"):
        side_by_side(tasks, 2, ignore)
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
        assert gone(workers)
        parent.wait(timeout=10)


def test_a_process_ends_if_its_parent_is_gone_already():
    parent = 1 if os.getpid() != 1 else 0
    code = f"import time; from engine.processes.parent import watch_parent; watch_parent({parent})"
    words = [sys.executable, "-c", f"{code}; time.sleep(60)"]
    assert subprocess.run(words, cwd=ROOT, timeout=30, check=False).returncode == 1
