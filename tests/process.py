"""Functions and scripts in processes of their own, which are forks of one that has imported the
libraries: importing takes longer than most of what tests then do.
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


class Done(NamedTuple):
    returncode: int | None
    stdout: str
    stderr: str


def context() -> ForkServerContext:
    """Where processes are such forks."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(LIBRARIES)
    return forks


def start(function: Callable[..., Any], *arguments: Any) -> ForkServerProcess:
    """A process that calls a function of a module, with one thread as all tests."""
    process = context().Process(target=function, args=arguments)
    process.start()
    return process


def call(function: Callable[..., Any], *arguments: Any, timeout: float = 240) -> Done:
    """The exit code of such a process, and what it wrote."""
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
    """`python script arguments...` in a folder."""
    return call(_script, str(script), arguments, str(cwd), timeout=timeout)


def _captured(written: tuple[Path, Path], function: Callable, arguments: tuple) -> None:
    for number, path in zip((1, 2), written, strict=True):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    function(*arguments)


def _script(script: str, arguments: tuple[str, ...], cwd: str) -> None:
    """What a fresh interpreter does; the project's modules are those of the script's checkout."""
    os.chdir(cwd)
    for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
        del sys.modules[name]
    here = {"", str(ROOT), str(ROOT / "scripts")}
    sys.path[:] = [str(Path(script).parent), *(path for path in sys.path if path not in here)]
    sys.argv[:] = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
