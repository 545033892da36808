"""A folder with tiny faces, and scripts that run on it in forked processes."""

import contextlib
import json
import os
import re
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine import ROOT
from engine.processes.parent import watch_parent
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
        self.csv = self.data / "imdb_wiki" / "imdb_wiki.csv"
        self.faces = self.data / "imdb_wiki" / "faces"
        self.packing = ("source=imdb_wiki", f"root={self.data / 'imdb_wiki'}", "pack=16")

    def tiny(self, *overrides: str) -> list[str]:
        return [*TINY, f"paths.data={self.data}", f"paths.outputs={self.outputs}", *overrides]

    def start(self, script: str, *arguments: str, **options: Any) -> "Running":
        return Running(script, arguments, **options)

    def run(self, script: str, *arguments: str, **options: Any) -> Done:
        return self.start(script, *arguments, **options).wait()

    def train(self, *overrides: str, **options: Any) -> Done:
        return self.run("train", *self.tiny(*overrides), **options)

    def evaluate(self, run: Path, *arguments: str, **options: Any) -> Done:
        arguments = (f"run={run}", "accelerator=cpu", "trust=[tests]", *arguments)
        return self.run("evaluate", *arguments, **options)

    def metrics(self, *overrides: str) -> dict[str, float]:
        """Return the metrics of a run, which is found or trained."""
        done = self.train(*overrides)
        assert done.returncode == 0, done.stderr
        return read_metrics(Path(done.stdout.splitlines()[0]))

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

    def __init__(self, script: str, arguments: tuple[str, ...], limit: int = 0, first: Any = None):
        super().__init__(_script, script, arguments, limit, first)
        self.session = self.process.pid or 0

    def kill(self, ready: Callable[[], bool], after: float, sign: signal.Signals) -> bool:
        """Send a signal some seconds after `ready`; return False if the script ended before."""
        while self.process.is_alive() and not ready():
            time.sleep(0.01)
        self.process.join(after)
        if not self.process.is_alive():
            return False
        os.kill(self.session, sign)
        self.process.join()
        return True

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
        for _ in range(100):
            if not self.members():
                return []
            time.sleep(0.1)
        return self.members()


def _script(script: str, arguments: tuple[str, ...], limit: int, first: Any) -> None:
    watch_parent(os.getppid())
    os.setsid()
    os.environ.pop("HYDRA_FULL_ERROR", None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
    sys.argv[:] = [str(ROOT / "scripts" / f"{script}.py"), *arguments]
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if first is not None:
        first()
    runpy.run_path(sys.argv[0], run_name="__main__")


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
