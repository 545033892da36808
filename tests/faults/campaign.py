"""All faults, by kind, and how they are acted out."""

import functools
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.processes.pool import side_by_side
from engine.runs import records
from tests.faults.bench import Bench
from tests.faults.damage import files
from tests.faults.fault import Fault, beginning
from tests.faults.hostile import hostile
from tests.faults.kills import process
from tests.faults.machine import disk, resources
from tests.faults.mistakes import settings
from tests.faults.places import places
from tests.faults.ranks import ranks
from tests.faults.stale import stale


@functools.cache
def catalogue(moments: int) -> tuple[Fault, ...]:
    return (
        *settings(), *hostile(), *files(), *disk(), *resources(), *ranks(), *places(), *stale(),
        *(Fault(*kill) for kill in process(moments)),
    )  # fmt: skip


def replay(
    folder: Path,
    moments: int,
    wanted: Callable[[Fault], bool],
    resume: bool,
    jobs: int,
    say: Callable[[str], Any],
) -> list[dict[str, Any]]:
    """Act out the wanted faults of the catalogue, so many `jobs` at a time, each on a bench of its
    own.

    What happened is kept in faults.json; with `resume` those that went well are not repeated.
    """
    path = folder / "faults.json"
    kept = records.read(path, f"Remove {path}.")["faults"] if resume and path.is_file() else []
    done = {(one["kind"], one["fault"]): one for one in kept if one["good"]}
    for bench in folder.glob("bench-*"):
        shutil.rmtree(bench)

    def tell(one: dict[str, Any]) -> None:
        end = "lost" if one["lost"] else "not lost"
        mark = "ok " if one["good"] else "BAD"
        say(f"{mark} {one['kind']:9} {one['fault']:45} -> {one['happened']} -> {end}")

    def told(_: int, one: dict[str, Any] | None) -> None:
        if one is not None:
            done[one["kind"], one["fault"]] = one
            records.write(path, {"faults": list(done.values())})
            tell(one)

    chosen = {(f.kind, f.name): n for n, f in enumerate(catalogue(moments)) if wanted(f)}
    for name in chosen.keys() & done.keys():
        tell(done[name])
    ahead = [number for name, number in chosen.items() if name not in done]
    side_by_side([functools.partial(acted_out, moments, n, folder) for n in ahead], jobs, told)
    return [done[name] for name in chosen]


def acted_out(moments: int, number: int, folder: Path, tell: Callable[[Any], None]) -> None:
    """Tells what became of a fault of the catalogue."""
    fault, start = catalogue(moments)[number], time.monotonic()
    try:
        happened, lost, good = fault.act(Bench(folder.resolve() / f"bench-{os.getpid()}"))
    except Exception as error:
        happened, lost, good = f"{type(error).__name__}: {beginning(str(error))}", True, False
    happened = " ".join(happened.split())
    about = {"kind": fault.kind, "fault": fault.name, "happened": happened}
    seconds = round(time.monotonic() - start, 1)
    tell({**about, "lost": lost, "good": good, "seconds": seconds})
