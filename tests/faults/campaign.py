"""All faults, by kind, and how they are acted out."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine import records
from tests.faults.bench import Bench
from tests.faults.damage import files
from tests.faults.fault import Fault
from tests.faults.hostile import hostile
from tests.faults.kills import process
from tests.faults.machine import disk, resources
from tests.faults.mistakes import settings
from tests.faults.ranks import ranks


def catalogue(moments: int) -> list[Fault]:
    return [
        *settings(), *hostile(), *files(), *disk(), *resources(), *ranks(),
        *(Fault(*kill) for kill in process(moments)),
    ]  # fmt: skip


def replay(
    folder: Path,
    wanted: Callable[[Fault], bool],
    resume: bool,
    faults: list[Fault],
    say: Callable[[str], Any],
) -> list[dict[str, Any]]:
    """Act out the wanted faults, one after the other, each on a bench of its own.

    What happened is kept in faults.json; with `resume` those that are in it are not repeated.
    """
    path = folder / "faults.json"
    kept = records.read(path, f"Remove {path}.")["faults"] if resume and path.is_file() else []
    done = {(one["kind"], one["fault"]): one for one in kept}
    found = []
    for fault in filter(wanted, faults):
        one = done.get((fault.kind, fault.name)) or acted_out(fault, folder / "bench")
        done[fault.kind, fault.name] = one
        records.write(path, {"faults": list(done.values())})
        end = "lost" if one["lost"] else "not lost"
        mark = "ok " if one["good"] else "BAD"
        say(f"{mark} {fault.kind:9} {fault.name:45} -> {one['happened']} -> {end}")
        found.append(one)
    return found


def acted_out(fault: Fault, folder: Path) -> dict[str, Any]:
    start = time.monotonic()
    try:
        happened, lost, good = fault.act(Bench(folder))
    except Exception as error:
        happened, lost, good = f"{type(error).__name__}: {error}"[:150], True, False
    about = {"kind": fault.kind, "fault": fault.name, "happened": " ".join(happened.split())}
    seconds = round(time.monotonic() - start, 1)
    return {**about, "lost": lost, "good": good, "seconds": seconds}
