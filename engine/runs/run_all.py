"""Run many configs, in parallel where they share cached features, and report typed events."""

import functools
import os
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Literal, NamedTuple

from omegaconf import DictConfig

from engine.cli import targets
from engine.cli.errors import paragraph
from engine.processes.pool import side_by_side
from engine.runs import identity
from engine.runs.run import first_stage, result, run


class Event(NamedTuple):
    """A step of the work, e.g. of the run "BMC, seed 0"."""

    label: str
    state: Literal["found", "running", "done", "failed"]
    seconds: float = 0.0
    error: str = ""
    trace: str = ""

    def __str__(self) -> str:
        took = f" in {self.seconds:.0f} s" if self.state == "done" else ""
        return f"{self.label}: {self.state}{took}"


Progress = Callable[[Event], None]


def run_all(cfgs: Mapping[str, DictConfig], jobs: int, progress: Progress) -> None:
    """Run what is missing of {label: config}; on cached features `jobs` at a time."""
    failed: dict[str, Event] = {}
    broken: dict[str | None, Event] = {}  # stage-1 runs that failed are not tried for every head
    sources: set[str | None] = set()
    tasks = []

    def note(event: Event) -> None:
        if event.state == "failed":
            failed[event.label] = event
        progress(event)

    for name, cfg in cfgs.items():
        if result(cfg) is not None and not cfg.rerun:
            progress(Event(name, "found"))
            continue
        stage1 = first_stage(cfg)
        source = None if stage1 is None else identity.digest(targets.plain(stage1))
        if source in broken:
            note(broken[source]._replace(label=name))
        elif jobs > 1 and cfg.features.mode == "cached" and source in sources:
            tasks.append(functools.partial(attempt_quietly, name, cfg))
        else:  # the first run on a stage 1 computes its features, with all threads
            attempt(name, cfg, note)
            if name in failed and stage1 is not None and result(stage1) is None:
                broken[source] = failed[name]
        sources.add(source)
    side_by_side(tasks, jobs, lambda _, event: None if event is None else note(event))
    if failed:
        rows: dict[str, list[str]] = {}  # one line for each reason
        for name, event in failed.items():
            rows.setdefault(event.error, []).append(name)
        lines = [f"{'; '.join(names)}: {text}" for text, names in rows.items()]
        first = f"{len(failed)} of {len(cfgs)} runs failed; the others are kept."
        error = RuntimeError("\n".join([first, *lines]))
        for event in failed.values():
            error.add_note(event.trace)
        raise error


def attempt(name: str, cfg: DictConfig, report: Progress) -> None:
    """Run a config and report how it ended. A diverged run is not a failure: the table marks it."""
    report(Event(name, "running"))
    start, end = time.time(), Event(name, "done")
    try:
        run(cfg)
    except FloatingPointError:
        pass
    except Exception as error:
        end = Event(name, "failed", error=paragraph(error), trace=traceback.format_exc())
    report(end._replace(seconds=time.time() - start))


def attempt_quietly(name: str, cfg: DictConfig, report: Progress) -> None:
    """As `attempt`, without output, which would mix with that of others."""
    cfg.log.progress = False
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        attempt(name, cfg, report)
