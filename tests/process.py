"""Functions and scripts in new processes, forked from one that has imported the libraries.

Importing them takes longer than most tests. Neither these processes nor the tests may write to
`outputs/` or `results/` of the checkout.
"""

import contextlib
import fcntl
import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, NamedTuple

from engine import ROOT

LIBRARIES = ["cv2", "hydra", "lightning_fabric", "matplotlib.figure", "sklearn.mixture", "smplx"]
LIBRARIES += ["torch.utils.tensorboard", "torchmetrics", "torchvision.transforms.v2"]
OWN = ("datasets", "engine", "losses", "metrics", "models", "scripts", "synthetic")
PROTECTED = (f"{ROOT}/outputs", f"{ROOT}/results")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PRINTED = 2**20  # bytes that a process may print


class Done(NamedTuple):
    returncode: int | None
    stdout: str
    stderr: str


def protect_checkout() -> None:
    """Raise an error wherever this process writes to a user's outputs/ or results/."""

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.mkdir", "os.rename", "os.remove"):
            return
        if event == "open" and not arguments[2] & WRITES:
            return
        path = arguments[event == "os.rename"]
        if isinstance(path, (str, os.PathLike)) and os.path.abspath(path).startswith(PROTECTED):
            raise PermissionError(f"{path}: a test may only write to its temporary folder")

    sys.addaudithook(check)


def context() -> ForkServerContext:
    """Return the context that forks such processes."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(LIBRARIES)
    return forks


class Running:
    """A function of a module in such a process, whose output goes to pipes."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        pipes = [Pipe(duplex=False) for _ in range(2)]  # a limit of file sizes does not apply
        for reader, writer in pipes:
            os.set_blocking(reader.fileno(), False)
            fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, PRINTED)
        self.readers = [reader for reader, _ in pipes]
        writers = [writer for _, writer in pipes]
        self.process = context().Process(target=_captured, args=(writers, function, arguments))
        self.process.start()
        for writer in writers:
            writer.close()

    def wait(self, timeout: float = 240) -> Done:
        """Return the exit code and the output."""
        self.process.join(timeout)
        self.process.kill()
        self.process.join()
        return Done(self.process.exitcode, *(_read(reader) for reader in self.readers))


def call(function: Callable[..., Any], *arguments: Any) -> Done:
    """Call a function in such a process; return its exit code and output."""
    return Running(function, *arguments).wait()


def ranks(function: Callable[[int, str], Any], folder: Path) -> None:
    """Call function(rank, folder) in two processes that torch.distributed connects."""
    started = [Running(_rank, rank, function, str(folder)) for rank in range(2)]
    for done in [one.wait() for one in started]:
        assert done.returncode == 0, done.stderr


def run(script: Path, *arguments: str, cwd: Path = ROOT) -> Done:
    """Run `python script arguments...` in a folder."""
    return call(run_script, script, arguments, cwd)


def _captured(writers: list[Connection], function: Callable, arguments: tuple) -> None:
    protect_checkout()
    for number, writer in enumerate(writers, 1):
        os.dup2(writer.fileno(), number)
        writer.close()
    function(*arguments)


def _read(reader: Connection) -> str:
    data = b""
    with contextlib.suppress(BlockingIOError):  # another process may still hold it open
        while part := os.read(reader.fileno(), PRINTED):
            data += part
    reader.close()
    return data.decode(errors="replace")


def _rank(rank: int, function: Callable, folder: str) -> None:
    import torch

    torch.set_num_threads(1)
    store, limit = f"file://{folder}/store", timedelta(seconds=60)
    torch.distributed.init_process_group("gloo", store, limit, world_size=2, rank=rank)
    function(rank, folder)
    torch.distributed.destroy_process_group()


def run_script(script: Path, arguments: tuple[str, ...], cwd: Path = ROOT) -> None:
    """Run a script; the project's modules are those of the script's checkout."""
    os.chdir(cwd)
    for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
        del sys.modules[name]
    here = {"", str(ROOT), str(ROOT / "scripts")}
    sys.path[:] = [str(script.parent), *(path for path in sys.path if path not in here)]
    sys.argv[:] = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")
