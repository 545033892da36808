"""Full disks, links, read-only folders, missing locks, wrong clocks and killed ranks."""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.engine.tiny import write_faces
from tests.faults.bench import STAGE2, Bench, Running, assert_refused, read_metrics
from tests.faults.test_kills import SYNTHETIC, table

quick = pytest.mark.quick


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        *(((), limit) for limit in (100, 500, 1000, 2000, 4000, 6000, 8000, 12000, 20000)),
        pytest.param((), 3000, marks=quick),
        *((STAGE2, limit) for limit in (3000, 9000, 30000)),
    ],
)
def test_full_disk(settings: tuple[str, ...], limit: int, bench: Bench):
    """While a run is written, or the cached features of a finished run."""
    assert not settings or bench.train().returncode == 0
    done = bench.train(*settings, limit=limit)
    if done.returncode:
        assert_refused(done, "could not be written")
    assert settings or not bench.temporary()
    assert bench.train(*settings).returncode == 0


def without_capabilities() -> None:
    """Apply permissions to root, too, and to the processes that it starts."""
    libc = ctypes.CDLL(None)
    head, state = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, state) == 0
    for capability in (1, 2):  # to write and to read whatever the permissions are
        libc.prctl(24, capability, 0, 0, 0)  # drop from the bounding set
        for i in range(3):  # effective, permitted, inheritable
            state[i] &= ~(1 << capability)
    assert libc.capset(head, state) == 0


@pytest.mark.parametrize(
    "script", [pytest.param("train", marks=quick), "run_synthetic", "evaluate"]
)
def test_read_only_folder(script: str, bench: Bench):
    """Of all outputs, or of a finished run."""
    folder = bench.finished_run() if script == "evaluate" else bench.outputs
    arguments = {
        "train": bench.tiny(),
        "run_synthetic": [f"folder={folder}", *SYNTHETIC],
        "evaluate": [f"run={folder}", "accelerator=cpu", "trust=[tests]"],
    }[script]
    folder.mkdir(exist_ok=True)
    folder.chmod(0o555)
    done = bench.run(script, *arguments, first=without_capabilities)
    folder.chmod(0o755)
    assert_refused(done, str(folder), "permission")


def test_outputs_and_data_are_links(bench: Bench):
    target = bench.folder / "elsewhere"
    target.mkdir()
    bench.outputs.symlink_to(target)
    bench.data.rename(bench.folder / "data_elsewhere")
    bench.data.symlink_to(bench.folder / "data_elsewhere")
    assert bench.run("prepare_age", *bench.packing).returncode == 0
    assert bench.run("table", *table(bench)).returncode == 0
    (made,) = (target / "tables").glob("*.json")
    runs = {path: path.stat().st_mtime_ns for path in target.rglob("metrics.json")}
    assert bench.run("table", *table(bench)).returncode == 0
    assert made.is_file()
    assert {path: path.stat().st_mtime_ns for path in target.rglob("metrics.json")} == runs


@pytest.mark.parametrize("target", ["nowhere", "out", None])
def test_outputs_is_a_file_or_a_broken_link(target: str | None, bench: Bench):
    if target is None:
        bench.outputs.write_text("a file where the folder should be")
    else:  # "out" is a link to itself
        bench.outputs.symlink_to(bench.folder / target)
    assert_refused(bench.train(), str(bench.outputs))


def without_locks() -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = flock


@pytest.mark.parametrize("script", [pytest.param("train", marks=quick), "prepare_age"])
def test_file_system_without_locks(script: str, bench: Bench):
    arguments = bench.tiny() if script == "train" else bench.packing
    assert_refused(bench.run(script, *arguments, first=without_locks), "lock")


def test_lock_and_temporary_file_of_a_dead_process(bench: Bench):
    folder = bench.finished_run()
    before = read_metrics(folder)
    (folder / "metrics.json").unlink()
    (folder / "lock").write_text("4194304")
    (folder / ".metrics.json.1234.tmp").write_text("{")
    assert bench.train().returncode == 0
    assert read_metrics(folder) == before
    assert not bench.temporary()


def clock_that_goes_back() -> None:
    now, calls = time.time, iter(range(10**9))
    time.time = lambda: now() - 3600 * next(calls)


def test_clock_that_goes_back(bench: Bench, fresh: Bench):
    assert bench.train(first=clock_that_goes_back).returncode == 0
    (path,) = bench.outputs.rglob("metrics.json")
    assert json.loads(path.read_text())["seconds"] > 0
    assert read_metrics(path.parent) == read_metrics(fresh.finished_run())


def test_files_from_the_future(bench: Bench):
    before = read_metrics(bench.finished_run())
    ahead = time.time() + 3e8
    for path in bench.folder.rglob("*"):
        os.utime(path, (ahead, ahead))
    rerun, found = bench.train(), bench.train()
    assert rerun.returncode == found.returncode == 0
    assert "images changed" in rerun.stderr
    assert not found.stderr
    assert all(read_metrics(path.parent) == before for path in bench.outputs.rglob("metrics.json"))


def test_a_rank_without_samples_to_evaluate(bench: Bench):
    """Two ranks and one test image: the metrics are those of one process."""
    shutil.rmtree(bench.data)
    write_faces(bench.data, other=1)
    assert bench.train("trainer.devices=2").returncode == 0
    folder = next(bench.outputs.rglob("metrics.json")).parent
    words = (f"run={folder}", "accelerator=cpu", "trust=[tests]")
    assert bench.run("evaluate", *words).returncode == 0
    one = json.loads((folder / "evaluation_best_test.json").read_text())["mae"]
    assert read_metrics(folder)["test/mae"] == pytest.approx(one, rel=1e-5)  # order of sums


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_two_ranks_are_stopped(sign: signal.Signals, bench: Bench, fresh: Bench):
    """One rank is killed, or the command is terminated, which ends its ranks."""
    two = ("trainer.devices=2", "trainer.epochs=20", f"paths.data={bench.data}")
    assert fresh.train(*two).returncode == 0
    running = Running("train", bench.tiny(*two))
    running.wait_until(lambda: bool(list(bench.outputs.rglob("last.pt"))))
    lines = {process: Path(f"/proc/{process}/cmdline") for process in running.members()}
    ranks = [process for process, path in lines.items() if b"spawn_main" in path.read_bytes()]
    os.kill(ranks[-1] if sign == signal.SIGKILL else running.session, sign)
    assert running.wait().returncode == (1 if sign == signal.SIGKILL else 130)
    assert not running.left()
    assert not list(bench.outputs.rglob("metrics.json"))
    assert bench.train(*two).returncode == 0
    pair = [next(b.outputs.rglob("metrics.json")).parent for b in (bench, fresh)]
    assert read_metrics(pair[0]) == read_metrics(pair[1])
