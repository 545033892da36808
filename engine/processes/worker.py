"""A process that works on tasks for another one: python -P worker.py <its caller's id> <a file
descriptor>. See pool.py.

It is started by its path, follows its caller first, and imports what the tasks need only then.
"""

import contextlib
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any


def main(caller: int, descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the caller, too, who ends us
    signal.signal(signal.SIGTERM, _stop)  # so that what is half written is removed
    line = Connection(descriptor)
    sys.path[:] = pickle.loads(line.recv_bytes())
    from engine.processes.follow import follow

    follow(caller)
    import torch

    torch.set_num_threads(1)

    def tell(what: Any) -> None:
        line.send_bytes(pickle.dumps(("progress", what)))

    while True:
        task = line.recv_bytes()
        line.send_bytes(outcome(task, tell))


def outcome(task: bytes, tell: Any) -> bytes:
    """("done", what the task returns) or ("failed", its error), pickled."""
    try:
        return pickle.dumps(("done", pickle.loads(task)(tell)))
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(said := pickle.dumps(("failed", error)))
        except Exception:  # some errors cannot travel
            said = pickle.dumps(("failed", RuntimeError(f"{type(error).__name__}: {error}")))
        return said


def _stop(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    with contextlib.suppress(EOFError):  # the caller is gone
        main(int(sys.argv[1]), int(sys.argv[2]))
