"""Functions and scripts in new processes, forked from one that has imported the libraries.

Importing them takes longer than most tests. Neither these processes nor the tests may write to
`outputs/` or `results/` of the checkout.
"""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from engine import ROOT

LIBRARIES = ["cv2", "hydra", "lightning_fabric", "matplotlib.figure", "sklearn.mixture", "smplx"]
LIBRARIES += ["torch.utils.tensorboard", "torchmetrics", "torchvision.transforms.v2"]
OWN = ("datasets", "engine", "losses", "metrics", "models", "scripts", "synthetic")
PROTECTED = (f"{ROOT}/outputs", f"{ROOT}/results")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


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


def start(function: Callable[..., Any], *arguments: Any) -> ForkServerProcess:
    """Start a process that calls a function of a module."""
    process = context().Process(target=_protected, args=(function, arguments))
    process.start()
    return process


def call(function: Callable[..., Any], *arguments: Any, timeout: float = 240) -> Done:
    """Call a function in such a process; return its exit code and output."""
    with TemporaryDirectory() as folder:
        written = Path(folder, "out"), Path(folder, "err")
        for path in written:
            path.touch()
        process = start(_captured, written, function, arguments)
        process.join(timeout)
        process.kill()
        process.join()
        return Done(process.exitcode, *(path.read_text() for path in written))


def run(script: Path, *arguments: str, cwd: Path = ROOT, timeout: float = 240) -> Done:
    """Run `python script arguments...` in a folder."""
    return call(_script, str(script), arguments, str(cwd), timeout=timeout)


def _protected(function: Callable, arguments: tuple) -> None:
    protect_checkout()
    function(*arguments)


def _captured(written: tuple[Path, Path], function: Callable, arguments: tuple) -> None:
    for number, path in zip((1, 2), written, strict=True):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    function(*arguments)


def _script(script: str, arguments: tuple[str, ...], cwd: str) -> None:
    """Run a script; the project's modules are those of the script's checkout."""
    os.chdir(cwd)
    for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
        del sys.modules[name]
    here = {"", str(ROOT), str(ROOT / "scripts")}
    sys.path[:] = [str(Path(script).parent), *(path for path in sys.path if path not in here)]
    sys.argv[:] = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
