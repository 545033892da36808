"""A folder with tiny faces, and scripts that run on it in forked processes."""

import contextlib
import json
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine import ROOT
from engine.processes.pool import watch_parent
from tests import process
from tests.engine.tiny import MODEL, SIZE, write_faces
from tests.process import Done

TINY = (
    *("experiment=imdb_wiki/vanilla", "preset=laptop", *MODEL, "trust=[tests]"),
    *("trainer.epochs=2", "trainer.batch_size=24", "trainer.workers=0", "trainer.accelerator=cpu"),
    *(f"dataset.size={SIZE}", "trainer.epoch_size=48", "log.figures=false", "log.progress=false"),
    *("log.replicates=0", "trainer.checkpoint_every=1", "log.every=1"),
)
STAGE2 = ("experiment=imdb_wiki/bmc", "features=cached", "features.views=1")
TEMPORARY = ("*.tmp", "*.part", "*.parts", "*.journal", "*.partial", "*.partial-*")
# Log lines, and the lines that Fabric prints when it starts its ranks.
LOGGED = re.compile(r"\d{4}-\d\d-\d\d |Initializing dist|-{9}|distributed_backend|All distr|$")


class Bench:
    """A folder with 48 + 12 + 12 tiny faces and an empty `outputs`."""

    def __init__(self, folder: Path):
        self.folder, self.outputs = folder, folder / "out"
        self.data = write_faces(folder / "data")
        self.packing = ("source=imdb_wiki", f"root={self.data / 'imdb_wiki'}", "pack=16")

    def tiny(self, *overrides: str) -> list[str]:
        return [*TINY, f"paths.data={self.data}", f"paths.outputs={self.outputs}", *overrides]

    def run(self, script: str, *arguments: str, **options: Any) -> Done:
        return Running(script, arguments, **options).wait()

    def train(self, *overrides: str, **options: Any) -> Done:
        return self.run("train", *self.tiny(*overrides), **options)

    def finished_run(self) -> Path:
        """Return the folder of a finished tiny run."""
        assert self.train().returncode == 0
        return next(self.outputs.rglob("metrics.json")).parent

    def temporary(self) -> list[Path]:
        return [path for form in TEMPORARY for path in self.folder.rglob(form)]


class Running(process.Running):
    """A script in a new session.

    limit: the largest file that it may write; first: a function that it calls before the script.
    """

    def __init__(self, script: str, arguments: Sequence[str], limit: int = 0, first: Any = None):
        super().__init__(_script, script, tuple(arguments), limit, first)
        self.session = self.process.pid or 0

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready`, or until the script has ended."""
        while self.process.is_alive() and not ready():
            time.sleep(0.01)

    def members(self) -> list[int]:
        """Return the processes of the session that have not ended."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.session and fields[0] != "Z":
                    found.append(int(stat.parent.name))
        return sorted(found)

    def left(self) -> list[int]:
        """Return the processes of the session that are still alive after ten seconds."""
        until = time.monotonic() + 10
        while self.members() and time.monotonic() < until:
            time.sleep(0.1)
        return self.members()


def _script(script: str, arguments: tuple[str, ...], limit: int, first: Any) -> None:
    watch_parent(os.getppid())
    os.setsid()
    os.environ.pop("HYDRA_FULL_ERROR", None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if first is not None:
        first()
    process.run_script(ROOT / "scripts" / f"{script}.py", arguments)


def read_metrics(folder: Path) -> dict[str, float]:
    return json.loads((folder / "metrics.json").read_text())["metrics"]


def assert_refused(done: Done, *words: str) -> None:
    """Check for exit code 1 and one paragraph with these words and without a traceback."""
    lines = [line for line in done.stderr.splitlines() if not LOGGED.match(line)]
    assert done.returncode == 1, done
    assert 0 < len(lines) <= 6, done.stderr
    text = "\n".join(lines)
    assert "Traceback" not in text, text
    for word in words:
        assert word in text
