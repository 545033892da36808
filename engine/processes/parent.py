"""Watch the parent process: end with it, however it ends.

Only the standard library is imported, so that a process can watch its parent before slow imports.
"""

import os
import threading
import time
from collections.abc import Callable

TICK = 0.1  # seconds between two checks


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
