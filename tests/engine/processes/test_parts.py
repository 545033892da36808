"""Parts under one display: the time left, a failing part, and going on after Ctrl-C and kill -9."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.processes.parts import TRUST, Part, Plan, clock, work_through

ROOT = Path(__file__).parents[3]
STEPS = 8
# Parts of small steps, each a file that is not made twice; the table is made from the files.
PROGRAM = f"""
import json, signal, sys, time
from pathlib import Path
from engine.processes.parts import Part, Plan, work_through

folder = Path(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it

def part(name, offset):
    def work(reach):
        values = []
        for step in range({STEPS}):
            path = folder / f"{{name}}-{{step}}.json"
            found = path.is_file()
            if not found:
                time.sleep(0.05)
                path.write_text(json.dumps(offset + step))
            values.append(json.loads(path.read_text()))
            reach((step + 1) / {STEPS}, found)
            print("step", step)
        table = folder / f"{{name}}.table"
        table.write_text(json.dumps({{"rows": values}}))
        return table
    return Part(name, 10.0, work)

made = [part("a", 0), part("b", 100)]
done = work_through(made, Plan({{p.name: p.seconds for p in made}}), folder / "log", print)
print("end", sorted(done))
"""


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_half_way_it_goes_on_and_ends_the_same(how: signal.Signals, tmp_path: Path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert start(whole).communicate(timeout=120)[0].endswith("end ['a', 'b']\n")

    process = start(broken)
    half = broken / f"b-{STEPS // 2}.json"
    until = time.monotonic() + 120
    while not half.exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert (broken / "a.table").exists()
    assert not (broken / "b.table").exists()
    before = {path.name: path.stat().st_mtime_ns for path in broken.glob("*.json")}

    assert start(broken).communicate(timeout=120)[0].endswith("end ['a', 'b']\n")
    for name, made in before.items():
        if json.loads((broken / name).read_text() or "null") is not None:
            assert (broken / name).stat().st_mtime_ns == made  # not done again
    for table in ("a.table", "b.table"):
        assert (broken / table).read_text() == (whole / table).read_text()


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_left_follows_our_own_speed():
    now = Clock()
    plan = Plan({"a": 100.0, "b": 300.0}, now)
    assert plan.left() == 400
    plan.begin("a")
    now.now = 50  # half of the part in half its time
    plan.reach(0.5)
    assert plan.left() == pytest.approx(350)
    assert plan.done() == pytest.approx(50 / 400)
    now.now = 60  # between two reports the clock goes on
    assert plan.left() == pytest.approx(340)
    now.now = 250  # the other half took four times as long as expected
    plan.reach(1.0)
    assert plan.left() == pytest.approx(300 * (TRUST + 250) / (TRUST + 100))
    plan.end()
    assert (plan.left(), plan.done()) == (0, 1)


def test_what_is_found_does_not_make_us_hopeful():
    now = Clock()
    plan = Plan({"a": 100.0, "b": 300.0}, now)
    plan.begin("a")
    now.now = 1
    plan.reach(1.0, found=True)
    assert plan.left() == pytest.approx(300)


def test_a_failing_part_is_named_and_the_others_run(tmp_path: Path):
    def fail(reach) -> None:
        print("before")
        raise ValueError("no such file")

    made = [Part("bad", 1.0, fail), Part("good", 1.0, lambda reach: tmp_path / "x.json")]
    lines: list[str] = []
    log = tmp_path / "log"
    done = work_through(made, Plan({"bad": 1.0, "good": 1.0}), log, lines.append)
    assert done == {"good": tmp_path / "x.json"}
    assert lines[0] == f"bad: FAILED, ValueError: no such file (see {log})"
    assert lines[1].startswith("good: done in 0:00:00")
    assert "before" in log.read_text()
    assert "Traceback" in log.read_text()


def test_clock():
    assert clock(3909.4) == "1:05:09"
