"""Run tasks in parallel processes with one thread each: small tensors gain nothing from more.

Only the standard library is imported, so that a process can watch its parent before slow imports.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any
from unittest.mock import patch

START = "spawn"  # how workers start
TICK = 0.1  # seconds between two checks of progress, or of the parent
PATIENCE = 5  # seconds for workers to remove their temporary files
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Task = Callable[[Callable[[Any], None]], Any]  # receives a function that reports progress
_reports: Any = None  # in a worker: the queue of reports to the parent


def side_by_side(
    tasks: Sequence[Task], workers: int, progress: Callable[[int, Any], None]
) -> list[Any]:
    """Return the results of picklable tasks, in their order.

    `progress(i, report)` is called for each report of task i, and with None when it is done. The
    first error stops all workers and is raised.
    """
    if not tasks:
        return []
    context = multiprocessing.get_context(START)
    reports = context.SimpleQueue()
    size = min(workers, len(tasks))
    with ProcessPoolExecutor(size, context, _start, (reports,)) as pool:
        futures = []
        try:
            with patch.dict(os.environ, dict.fromkeys(THREADS, "1")):  # as workers start
                futures += [pool.submit(_run, i, task) for i, task in enumerate(tasks)]
            pending = set(futures)
            while pending:
                done, pending = wait(pending, TICK, FIRST_COMPLETED)
                while not reports.empty():
                    progress(*reports.get())
                for i, future in enumerate(futures):
                    if future in done:
                        future.result()  # raises the error of the task
                        progress(i, None)
        except BaseException as error:
            stop(list(pool._processes.values()))
            if isinstance(error, BrokenProcessPool):
                raise RuntimeError(
                    "A worker process was killed, perhaps because memory ran out (then use fewer "
                    "jobs). Run the same command again to resume."
                ) from None
            raise
    return [future.result() for future in futures]


def stop(processes: Sequence[Any]) -> None:
    """End processes, after some seconds in which they remove their temporary files."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(PATIENCE)
        process.kill()


def watch_parent(parent: int) -> None:
    """End this process once it is no longer a child of `parent`, even if that is SIGKILLed."""
    end_unless(lambda: os.getppid() == parent)


def end_unless(alive: Callable[[], bool]) -> None:
    """End this process once `alive` returns False."""

    def watch() -> None:
        while alive():
            time.sleep(TICK)
        os._exit(1)

    threading.Thread(target=watch, name="watch parent", daemon=True).start()


def _start(reports: Any) -> None:
    """Initialise a worker."""
    global _reports
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_unless(parent.is_alive)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops us
    signal.signal(signal.SIGTERM, _stop)
    _reports = reports


def _stop(number: int, frame: Any) -> None:
    """Unwind the stack, so that temporary files are removed; a second signal changes nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _run(i: int, task: Task) -> Any:
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:  # stopped between two tasks
        os._exit(1)
    try:
        return task(lambda report: _reports.put((i, report)))
    except SystemExit as error:  # the executor would go on with the next task
        os._exit(error.code if isinstance(error.code, int) else 1)
    except Exception as error:
        if type(error).__module__ != "builtins":  # others may not be picklable
            raise RuntimeError(f"{type(error).__name__}: {error}") from None
        raise
