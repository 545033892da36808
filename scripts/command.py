"""How every script starts: its own checkout comes first on the path, Hydra reads its config, its
settings are checked, and an error ends it with one paragraph and exit code 1.

A script finds this file because Python puts the script's folder on the path. HYDRA_FULL_ERROR=1
shows the whole traceback of an error.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

ROOT = str(Path(__file__).resolve().parents[1])
if sys.path[0] != ROOT:
    sys.path.insert(0, ROOT)  # before any other checkout that may be installed
if "__mp_main__" in sys.modules:  # a process that trains on one device reads its script again
    from engine.processes.parent import watch_parent

    watch_parent(os.getppid())  # before the imports that take seconds
FULL = "HYDRA_FULL_ERROR"
arrived: list[str] = []  # what failed jobs of a launcher's own processes said, see JobFailed


class JobFailed(RuntimeError):
    """A job's error in words, on its way from a launcher's own process to ours: Hydra raises that
    of the first job only, so each is noted where it arrives."""

    def __reduce__(self) -> Any:
        return _arrive, (str(self),)


def _arrive(text: str) -> JobFailed:
    arrived.append(text)
    return JobFailed(text)


def command(
    config: str, free: str = ""
) -> Callable[[Callable[[DictConfig], Any]], Callable[..., Any]]:
    """A decorator: main() reads configs/<config>.yaml and the command line, main(cfg) takes cfg.

    free: the group whose settings need not be in that file.
    """

    def decorate(main: Callable[[DictConfig], Any]) -> Callable[..., Any]:
        from engine.cli import errors, settings
        from engine.cli.help import help_if_wanted

        path = Path(ROOT, "configs", config)
        start = hydra.main(version_base="1.3", config_path=str(path.parent), config_name=path.name)

        @wraps(main)
        def checked(cfg: DictConfig) -> Any:
            settings.check(cfg, config)
            return main(cfg)

        @wraps(main)
        def run(cfg: DictConfig | None = None) -> Any:
            if cfg is not None:
                return checked(cfg)
            help_if_wanted(sys.modules[main.__module__].__doc__ or "", config)
            sys.argv[1:] = [freed(argument, free) for argument in sys.argv[1:]]
            if {"--multirun", "-m"} & set(sys.argv):  # a launcher's process starts without us
                found = [str(Path(__file__).parent), ROOT, os.environ.get("PYTHONPATH", "")]
                os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, found))
            failed: list[Exception] = []
            caller = os.getpid()

            def caught(cfg: DictConfig) -> Any:
                try:  # what goes through Hydra is told by Hydra, too
                    return checked(cfg)
                except Exception as error:
                    if os.getpid() != caller:
                        raise JobFailed(errors.paragraph(error)) from None
                    failed.append(error)

            def every_job() -> Any:
                try:
                    done = start(wraps(main)(caught))()
                except JobFailed as error:
                    for text in dict.fromkeys(arrived):
                        if text != str(error):
                            _say(text, 1)
                    raise
                for error in failed[:-1]:  # with --multirun, several jobs may have failed
                    _say(errors.paragraph(error), 1)
                if failed:
                    raise failed[-1]
                return done

            return guarded(every_job)

        return run

    return decorate


def freed(argument: str, free: str) -> str:
    """A setting of the free group in Hydra's words for "new or not"."""
    return f"++{argument}" if free and argument.startswith(f"{free}.") else argument


def guarded(start: Callable[[], Any]) -> Any:
    """Run a script to its end; an error is told on stderr, and the exit code is 1."""
    full = os.environ.get(FULL) == "1"
    os.environ[FULL] = "1"  # Hydra hands errors on to us
    signal.signal(signal.SIGTERM, _stop)  # so that what is half written is removed
    try:
        return start()
    except KeyboardInterrupt:
        raise SystemExit(_say("stopped; the same command goes on from here.", 130)) from None
    except Exception as error:
        from engine.cli import errors

        if full:
            traceback.print_exc()
        hint = "" if full else f" ({FULL}=1 shows where.)"
        raise SystemExit(_say(f"{errors.paragraph(error)}{hint}", 1)) from None


def _say(text: str, code: int) -> int:
    print(text, file=sys.stderr, flush=True)
    return code


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
