"""A workbench for faults: tiny data, and scripts in forked processes that need not import again."""

import contextlib
import fcntl
import os
import resource
import runpy
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.global_hydra import GlobalHydra

from engine import ROOT
from engine.processes.parent import watch_parent
from tests.engine.tiny import SIZE, write_faces

MODEL = ("model._target_=tests.engine.tiny.TinyNet", "~model.pretrained", "~model.drop_connect")
TINY = (
    *("experiment=imdb_wiki/vanilla", "preset=laptop", *MODEL, "trust=[tests]"),
    *("trainer.epochs=2", "trainer.batch_size=24", "trainer.workers=0", "trainer.accelerator=cpu"),
    *(f"dataset.size={SIZE}", "trainer.epoch_size=48", "log.figures=false", "log.progress=false"),
    *("log.draws=0", "trainer.checkpoint_every=1", "log.every=1"),
)
TOLD = 2**20  # bytes that a script may print


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Bench:
    """A folder with 48 + 12 + 12 tiny faces; `start` runs a script beside it."""

    def __init__(self, folder: Path):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.outputs = folder, folder / "out"
        self.data = write_faces(folder / "data")
        self.told: dict[int, list[int]] = {}  # what to read from, of each process

    def tiny(self, *overrides: str) -> list[str]:
        places = [f"paths.data={self.data}", f"paths.outputs={self.outputs}"]
        return [*TINY, *places, *overrides]

    def train(self, *overrides: str, **options) -> Done:
        return self.wait(self.start("train", *self.tiny(*overrides), **options))

    def start(
        self, script: str, *arguments: str, limit: int = 0, first: Callable[[], Any] | None = None
    ) -> int:
        """The id of a process of its own session; limit: the largest file it may write; first: what
        it does before the script."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        pipes = [os.pipe(), os.pipe()]  # no files: the limit is not for what is told
        for reader, writer in pipes:
            os.set_blocking(reader, False)
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, TOLD)
        parent, child = os.getpid(), os.fork()
        if child:
            for _, writer in pipes:
                os.close(writer)
            self.told[child] = [reader for reader, _ in pipes]
            return child
        code = 70
        try:
            watch_parent(parent)  # a campaign that is stopped leaves none of its scripts
            os.setsid()
            os.environ.pop("HYDRA_FULL_ERROR", None)
            GlobalHydra.instance().clear()
            for number, (reader, writer) in enumerate(pipes, 1):
                os.dup2(writer, number)
                os.close(writer)
                os.close(reader)
            sys.stdout, sys.stderr = (os.fdopen(n, "w", 1, closefd=False) for n in (1, 2))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
            sys.argv = [str(ROOT / "scripts" / f"{script}.py"), *arguments]
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if first is not None:
                first()
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
            if isinstance(error.code, str):
                os.write(2, error.code.encode())
        except BaseException as error:
            os.write(2, f"Traceback: {type(error).__name__}: {error}".encode())
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError):
                    stream.flush()
            os._exit(code)

    def wait(self, child: int) -> Done:
        _, status = os.waitpid(child, 0)
        return Done(os.waitstatus_to_exitcode(status), *self.heard(child))

    def heard(self, child: int) -> list[str]:
        """What it has printed, to stdout and to stderr."""
        texts = []
        for reader in self.told.pop(child):
            data = b""
            with contextlib.suppress(BlockingIOError):  # another process may still hold it open
                while part := os.read(reader, TOLD):
                    data += part
            os.close(reader)
            texts.append(data.decode(errors="replace"))
        return texts

    def kill_when(self, child: int, ready: Callable[[], bool], after: float, number: int) -> bool:
        """Send a signal some seconds after it is ready; False if it had ended before."""
        while not ready():
            if os.waitpid(child, os.WNOHANG)[0]:
                return False
            time.sleep(0.01)
        time.sleep(after)
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        os.kill(child, number)
        os.waitpid(child, 0)
        return True


def alive(session: int) -> list[int]:
    """Processes of a session that are still there, after a moment to end."""
    for _ in range(100):
        if not (found := members(session)):
            return []
        time.sleep(0.1)
    return found


def members(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return sorted(found)


def command_line(process: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""
