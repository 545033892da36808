"""A process that ends with the one that started it, in whatever way that one ends.

Nothing but the standard library is imported here: a process follows before it imports what takes
seconds.
"""

import os
import threading
import time
from collections.abc import Callable

TICK = 0.1  # seconds between two looks


def follow(parent: int) -> None:
    """From now on this process ends when it is no longer a child of `parent`."""
    end_without(lambda: os.getppid() == parent)


def end_without(alive: Callable[[], bool]) -> None:
    """From now on this process ends when what it needs is no longer alive."""

    def watch() -> None:
        while alive():
            time.sleep(TICK)
        os._exit(1)

    threading.Thread(target=watch, name="follow", daemon=True).start()
