"""Tasks side by side, each in a process with one thread: small tensors gain nothing from more.

The processes end with the caller, in whatever way it ends.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

PATIENCE = 5  # seconds for a worker to tidy up
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Task = Callable[[Callable[[Any], None]], Any]  # is handed a function that tells how far it is


def side_by_side(
    tasks: Sequence[Task], workers: int, progress: Callable[[int, Any], None]
) -> list[Any]:
    """The results of picklable tasks. `progress(i, what)` is called with what task i tells,
    and with None when it is done. The first error ends everything and is raised.
    """
    results: list[Any] = [None] * len(tasks)
    ahead = iter(range(len(tasks)))
    with _crew(min(workers, len(tasks))) as crew:
        busy: dict[Connection, int] = {}

        def next_task(line: Connection) -> None:
            if (i := next(ahead, None)) is not None:
                busy[line] = i
                line.send_bytes(pickle.dumps(tasks[i]))

        for line in crew:
            next_task(line)
        while busy:
            ready: Any = wait(list(busy))
            for line in ready:
                kind, content = _heard(line, crew[line])
                if kind == "failed":
                    raise content
                if kind == "progress":
                    progress(busy[line], content)
                    continue
                results[i := busy.pop(line)] = content
                progress(i, None)
                next_task(line)
    return results


@contextmanager
def _crew(size: int) -> Iterator[dict[Connection, subprocess.Popen]]:
    """{the line to it: a worker}. At the end they are told to stop, and are waited for."""
    crew: dict[Connection, subprocess.Popen] = {}
    try:
        for _ in range(size):
            line, end = Pipe()
            with end:
                crew[line] = _start(end)
            line.send_bytes(pickle.dumps(sys.path))
        yield crew
    finally:
        for worker in crew.values():
            worker.terminate()
        for line, worker in crew.items():
            try:
                worker.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            line.close()


def _start(end: Connection) -> subprocess.Popen:
    """NumPy and scikit-learn run there with one thread, like torch."""
    script = str(Path(__file__).with_name("worker.py"))
    return subprocess.Popen(
        [sys.executable, "-P", script, str(os.getpid()), str(end.fileno())],
        stdin=subprocess.DEVNULL,
        pass_fds=[end.fileno()],
        env={**os.environ, **dict.fromkeys(THREADS, "1")},
    )


def _heard(line: Connection, worker: subprocess.Popen) -> tuple[str, Any]:
    try:
        return pickle.loads(line.recv_bytes())
    except (EOFError, ConnectionError):
        code = worker.wait()
        raise RuntimeError(
            f"a process that worked beside this one ended with code {code} (-9: killed, perhaps "
            "as memory ran out; then use fewer jobs). Start the same command again, it goes on."
        ) from None
