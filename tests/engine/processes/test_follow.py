"""Processes that end with the one that started them."""

import os
import signal
import subprocess
import sys
import time

from engine import ROOT

CALLER = """
import os, subprocess, sys
import time
worker = subprocess.Popen([sys.executable, "-c", {follower!r}.format(parent=os.getpid())])
print(worker.pid, flush=True)
time.sleep(60)
"""
FOLLOWER = (
    "import time; from engine.processes.follow import follow; follow({parent}); time.sleep(60)"
)


def running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_ends_with_its_parent():
    code = CALLER.format(follower=FOLLOWER)
    caller = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert caller.stdout is not None
    worker = int(caller.stdout.readline())
    time.sleep(0.5)
    assert running(worker)
    os.kill(caller.pid, signal.SIGKILL)
    caller.wait()
    caller.stdout.close()
    until = time.monotonic() + 5  # it looks ten times a second
    while running(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not running(worker)


def test_it_ends_if_the_parent_is_gone_already():
    code = FOLLOWER.format(parent=1 if os.getpid() != 1 else 0)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=30, check=False)
    assert done.returncode == 1
