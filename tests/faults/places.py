"""Folders that are links or read-only, file systems without locks, wrong clocks, and others who
write there, too."""

import ctypes
import errno
import fcntl
import json
import os
import time
from pathlib import Path

from tests.faults.bench import Bench
from tests.faults.fault import Fault, beginning, finished_run, packing, refused
from tests.faults.kills import REPRODUCE, TABLE, TEMPORARY, contents, synthetic, table

ROOT_ONLY = (1, 2)  # the capabilities of root to write and to read whatever the permissions say
HEADER = 0x20080522  # the version of the kernel's record of capabilities
DROP_FOR_GOOD = 24  # prctl's


def places() -> list[Fault]:
    disk = {
        "outputs is read-only: train": read_only,
        "outputs is read-only: run_synthetic": read_only_synthetic,
        "the run folder is read-only: evaluate": read_only_run,
        "outputs and data are links": links,
        "outputs is a link to nowhere": lambda bench: linked(bench, "nowhere", "another place"),
        "outputs is a link to itself": lambda bench: linked(bench, "out", "leads back to itself"),
        "a file system without locks: train": no_locks,
        "a file system without locks: packing": no_locks_packing,
        "a lock and half a file of a dead process": stale,
    }
    resources = {
        "a clock that goes back": clock_back,
        "files from the future": future,
        "all rows of a table fail": rows,
    }
    return [
        *(Fault("disk", name, act, "train" in name) for name, act in disk.items()),
        *(Fault("resources", name, act) for name, act in resources.items()),
        Fault("process", "two reproduce.py at once", two),
    ]


def without_capabilities() -> None:
    """Permissions count for root, too, and for the processes that it starts."""
    libc = ctypes.CDLL(None)
    head, state = (ctypes.c_uint32 * 2)(HEADER, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, state) == 0
    for capability in ROOT_ONLY:
        libc.prctl(DROP_FOR_GOOD, capability, 0, 0, 0)
        for i in range(3):  # effective, permitted, inheritable
            state[i] &= ~(1 << capability)
    assert libc.capset(head, state) == 0


def read_only(bench: Bench) -> tuple[str, bool, bool]:
    bench.outputs.mkdir()
    bench.outputs.chmod(0o555)
    done = bench.train(first=without_capabilities)
    bench.outputs.chmod(0o755)
    return refused(done, str(bench.outputs), "permissions")


def read_only_synthetic(bench: Bench) -> tuple[str, bool, bool]:
    """Before anything is trained."""
    bench.outputs.mkdir()
    bench.outputs.chmod(0o555)
    told = bench.start("run_synthetic", *synthetic(bench), first=without_capabilities)
    done = bench.wait(told)
    bench.outputs.chmod(0o755)
    return refused(done, str(bench.outputs), "permissions")


def read_only_run(bench: Bench) -> tuple[str, bool, bool]:
    folder = finished_run(bench)
    folder.chmod(0o555)
    told = (f"run={folder}", "accelerator=cpu", "trust=[tests]")
    done = bench.wait(bench.start("evaluate", *told, first=without_capabilities))
    folder.chmod(0o755)
    return refused(done, str(folder), "permissions")


def links(bench: Bench) -> tuple[str, bool, bool]:
    """A table and a packed store through links are those without."""
    elsewhere = bench.folder / "elsewhere"
    elsewhere.mkdir()
    bench.outputs.symlink_to(elsewhere)
    bench.data.rename(bench.folder / "data_elsewhere")
    bench.data.symlink_to(bench.folder / "data_elsewhere")
    packed = bench.wait(bench.start("prepare_age", *packing(bench)))
    made = bench.wait(bench.start("table", *table(bench)))
    found = bench.wait(bench.start("table", *table(bench)))
    good = packed.code == made.code == found.code == 0 and "running" not in found.err
    good = good and (elsewhere / "tables" / f"{TABLE}.json").is_file()
    return f"exit {packed.code}, {made.code}, {found.code}", not good, good


def linked(bench: Bench, name: str, *words: str) -> tuple[str, bool, bool]:
    bench.outputs.symlink_to(bench.folder / name)
    return refused(bench.train(), str(bench.outputs), *words)


def without_locks() -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = flock


def no_locks(bench: Bench) -> tuple[str, bool, bool]:
    return refused(bench.train(first=without_locks), "lock", "no locks", "another")


def no_locks_packing(bench: Bench) -> tuple[str, bool, bool]:
    done = bench.wait(bench.start("prepare_age", *packing(bench), first=without_locks))
    return refused(done, "imdb_wiki_16.h5", "no locks", "another")


def stale(bench: Bench) -> tuple[str, bool, bool]:
    folder = finished_run(bench)
    before = numbers(folder)
    (folder / "metrics.json").unlink()
    (folder / "lock").write_text("4194304")
    (folder / "metrics.json.tmp").write_text("{")
    done = bench.train()
    left = [path.name for form in TEMPORARY for path in bench.outputs.rglob(form)]
    good = done.code == 0 and numbers(folder) == before and not left
    return f"exit {done.code}, {left or 'nothing'} left", not good, good


def numbers(folder: Path) -> dict[str, float]:
    return json.loads((folder / "metrics.json").read_text())["metrics"]


def clock_back(bench: Bench) -> tuple[str, bool, bool]:
    """An hour back with every look at it."""

    def first() -> None:
        true, looks = time.time, iter(range(10**9))
        time.time = lambda: true() - 3600 * next(looks)

    done = bench.train(first=first)
    folder = finished_run(bench)
    seconds = json.loads((folder / "metrics.json").read_text())["seconds"]
    whole = Bench(bench.folder / "whole")
    assert whole.train().code == 0
    good = done.code == 0 and seconds > 0 and numbers(folder) == numbers(finished_run(whole))
    return f"exit {done.code}, took {seconds:.1f} s", not good, good


def future(bench: Bench) -> tuple[str, bool, bool]:
    """Ten years ahead: run again once, with the reason, and found from then on."""
    before = numbers(finished_run(bench))
    ahead = time.time() + 3e8
    for path in bench.folder.rglob("*"):
        os.utime(path, (ahead, ahead))
    again, found = bench.train(), bench.train()
    good = again.code == found.code == 0 and "images changed" in again.err and not found.err
    runs = list(bench.outputs.rglob("metrics.json"))
    good = good and all(numbers(path.parent) == before for path in runs)
    return f"exit {again.code}: {beginning(again.err)}", not good, good


def rows(bench: Bench) -> tuple[str, bool, bool]:
    """All of them are named, as a file is where their folder should be."""
    (bench.outputs / "imdb_wiki").mkdir(parents=True)
    (bench.outputs / "imdb_wiki" / "gai").write_text("a file")
    done = bench.wait(bench.start("table", *table(bench)))
    text = "\n".join(t for t in done.err.splitlines() if not t.endswith(("running", "failed")))
    return refused(done._replace(err=text), "4 of 4 runs", "sigma = 7", "Joint.", "move what is")


def two(bench: Bench) -> tuple[str, bool, bool]:
    """Both end well and leave the same tables as one alone."""
    whole = Bench(bench.folder / "whole")
    assert whole.wait(whole.start("reproduce", *REPRODUCE.arguments(whole))).code == 0
    started = [bench.start("reproduce", *REPRODUCE.arguments(bench)) for _ in range(2)]
    codes = [bench.wait(child).code for child in started]
    same = contents(REPRODUCE, bench) == contents(REPRODUCE, whole)
    left = [path.name for form in TEMPORARY for path in bench.outputs.rglob(form)]
    good = codes == [0, 0] and same and not left
    return f"exit {codes}, the same {same}, {left or 'nothing'} left", not same, good
