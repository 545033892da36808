"""Tasks side by side, each in a process with one thread: small tensors gain nothing from more.

The processes end with the caller, in whatever way it ends.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import Any

import torch

TICK = 0.1  # seconds until what tasks tell is handed on
Task = Callable[[Callable[[Any], None]], Any]  # is handed a function that tells how far it is


def side_by_side(
    tasks: Sequence[Task], workers: int, told: Callable[[int, Any], None]
) -> list[Any]:
    """The results of picklable tasks. `told(i, what)` is called with what task i tells, and with
    None when it is done. The first error ends everything and is raised.
    """
    if not tasks:
        return []
    context = get_context("spawn")
    queue = context.SimpleQueue()  # what was told has arrived when its task is done
    size = min(workers, len(tasks))
    with _one_thread(), ProcessPoolExecutor(size, context, _start, (queue,)) as pool:
        futures = {pool.submit(_work, task, i): i for i, task in enumerate(tasks)}
        try:
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, TICK, FIRST_COMPLETED)
                while not queue.empty():
                    told(*queue.get())
                for future in done:
                    future.result()  # an error in a task is an error here
                    told(futures[future], None)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():  # Ctrl-C does not wait for the tasks under way
                worker.terminate()
            raise
    return [future.result() for future in futures]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that are started inside run NumPy and scikit-learn with one thread, like torch."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


_reports: Any = None  # a worker's way to tell how far it is


def _start(queue: Any) -> None:
    """Prepare a worker."""
    global _reports
    _reports = queue
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the caller, too, who ends us
    if (parent := parent_process()) is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


def _work(task: Task, index: int) -> Any:
    return task(lambda what: _reports.put((index, what)))
