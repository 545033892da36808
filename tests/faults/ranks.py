"""Several processes, one for each device."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable

from tests.engine.tiny import write_faces
from tests.faults.bench import Bench, alive, command_line, members
from tests.faults.fault import Fault, refused


def ranks() -> list[Fault]:
    def devices(value: str) -> Callable[[Bench], tuple[str, bool, bool]]:
        return lambda bench: refused(bench.train(f"trainer.devices={value}"), "devices")

    def few(bench: Bench) -> tuple[str, bool, bool]:
        done = bench.train("trainer.devices=4", "trainer.epoch_size=3")
        return refused(done, "cannot be shared by 4 devices")

    faults = [Fault("ranks", f"devices={v}", devices(v), v == "abc") for v in ("0", "-1", "abc")]
    faults.append(Fault("ranks", "fewer samples than ranks", few))
    faults.append(Fault("ranks", "a rank without samples to evaluate", empty_rank))
    return [*faults, Fault("ranks", "one of two is killed", lost_rank)]


def empty_rank(bench: Bench) -> tuple[str, bool, bool]:
    """Two ranks and one test image: the numbers are those of one process."""
    shutil.rmtree(bench.data)
    write_faces(bench.data, other=1)
    done = bench.train("trainer.devices=2")
    folder = next(bench.outputs.rglob("metrics.json")).parent
    told = (f"run={folder}", "accelerator=cpu", "trust=[tests]")
    alone = bench.wait(bench.start("evaluate", *told))
    one = json.loads((folder / "evaluation_best_test.json").read_text())["mae"]
    two = json.loads((folder / "metrics.json").read_text())["metrics"]["test/mae"]
    good = done.code == alone.code == 0 and abs(one - two) < 1e-5 * one  # sums in another order
    return f"exit {done.code}, mae {two:.4f}, alone {one:.4f}", not good, good


def lost_rank(bench: Bench) -> tuple[str, bool, bool]:
    """kill -9 of one rank after a checkpoint; the same command goes on to the same numbers."""
    two = ("trainer.devices=2", "trainer.epochs=20")
    whole = Bench(bench.folder / "whole")
    assert whole.train(*two, f"paths.data={bench.data}").code == 0
    child = bench.start("train", *bench.tiny(*two))
    while not list(bench.outputs.rglob("last.pt")):
        time.sleep(0.01)
    spawned = [pid for pid in members(child) if b"spawn_main" in command_line(pid)]
    os.kill(spawned[-1], signal.SIGKILL)
    broken = bench.wait(child)
    left = alive(child)
    again = bench.train(*two)
    pair = [next(b.outputs.rglob("metrics.json")).read_text() for b in (bench, whole)]
    first, second = (json.loads(text)["metrics"] for text in pair)
    good = broken.code == 1 and again.code == 0 and first == second and not left
    text = f"exit {broken.code}, then {again.code}: the same numbers {first == second}"
    return f"{text}, processes left {len(left)}", first != second, good
