"""Start of every script: Hydra reads its config, the settings are checked, and an error ends it
with one paragraph on stderr and exit code 1. HYDRA_FULL_ERROR=1 also prints the traceback.

A script finds this file because Python puts the script's folder on the path.
"""

import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

ROOT = str(Path(__file__).resolve().parents[1])
if sys.path[0] != ROOT:
    sys.path.insert(0, ROOT)  # before any other checkout that may be installed
if "__mp_main__" in sys.modules:  # a training process on one device imports its script again
    from engine.processes.pool import watch_parent

    watch_parent(os.getppid())  # before the imports that take seconds
FULL = "HYDRA_FULL_ERROR"
failures: list[str] = []


class JobFailed(RuntimeError):
    """A failed job. Hydra raises the first of a sweep only, so each message is recorded here, also
    when the error of a launcher's process is unpickled."""

    def __init__(self, message: str):
        super().__init__(message)
        failures.append(message)


Words = Callable[[list[str]], list[str]]


def command(
    name: str, config: str, target: str | Callable[..., Any], rewrite: Words = list
) -> Callable[..., Any]:
    """Return main(cfg), which checks the settings and calls `target`, a function or its name.
    Without a config it reads configs/<config>.yaml and the command line.

    A target is imported after the settings are checked, so help and errors are fast.
    name: `__name__` of the script; main() is called at once if it is the main program.
    rewrite: changes the words of the command line before Hydra reads them.
    """

    def main(cfg: DictConfig | None = None) -> Any:
        if cfg is None:
            return from_command_line(main, config, rewrite)
        if config != "train":  # engine.runs.run checks the configs that it runs
            from engine.cli import settings

            settings.check(cfg, config)
        return (pkgutil.resolve_name(target) if isinstance(target, str) else target)(cfg)

    if name == "__main__":
        main()
    return main


def from_command_line(main: Callable[..., Any], config: str, rewrite: Words) -> Any:
    """Run main with the config of the command line; every failed job of a sweep is reported."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        from engine.cli import help

        print(help.text(sys.modules["__main__"].__doc__ or "", config))
        return None
    from engine.processes.memory import keep_freed_memory

    keep_freed_memory()
    import hydra

    path = Path(ROOT, "configs", config)
    caller, full = os.getpid(), os.environ.get(FULL) == "1"
    start = hydra.main(version_base="1.3", config_path=str(path.parent), config_name=path.name)

    def message(error: Exception) -> str:
        from engine.cli.errors import paragraph

        if full:
            traceback.print_exc()
        return paragraph(error, config)

    def job(cfg: DictConfig) -> Any:
        try:
            return main(cfg)
        except Exception as error:
            failed = JobFailed(message(error))
            if os.getpid() != caller:  # a launcher's process; Hydra prints what is raised here
                raise failed from None

    sweep = ("--multirun", "-m")  # Hydra reads it before or after the settings, not among them
    sys.argv[1:] = sorted(rewrite(sys.argv[1:]), key=lambda word: word not in sweep)
    if {*sweep} & set(sys.argv):  # processes of a launcher import this file
        found = [str(Path(__file__).parent), ROOT, os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, found))
    os.environ[FULL] = "1"  # Hydra passes errors on to us
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # temporary files are removed
    failures.clear()
    done = None
    try:
        done = start(wraps(main)(job))()
    except KeyboardInterrupt:
        print("Interrupted. Run the same command again to resume.", file=sys.stderr, flush=True)
        raise SystemExit(130) from None
    except Exception as error:
        if not failures:
            failures.append(message(error))
    if failures:
        hint = "" if full else f" ({FULL}=1 shows the traceback.)"
        print("\n".join(dict.fromkeys(failures)) + hint, file=sys.stderr, flush=True)
        raise SystemExit(1)
    return done
