"""Freed memory is kept: a block that is allocated again takes no pages from the system."""

import os
import platform
import subprocess
import sys

import pytest

from engine import ROOT

BLOCK = 2**26  # bytes
FEW = 16  # pages; a block has at least twice as many, also of 2 MB each
COUNT = f"""
import resource, subprocess, sys, threading

def count():
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        bytearray({BLOCK})
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
"""
KEEP = "from engine.processes.memory import keep_freed_memory; keep_freed_memory()"
THREAD = "thread = threading.Thread(target=count); thread.start(); thread.join()"
CHILD = f"subprocess.run([sys.executable, '-c', {COUNT + 'count()'!r}])"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="options of glibc")
@pytest.mark.parametrize(
    ("given", "pages"),
    [
        ({}, range(FEW)),
        ({"MALLOC_MMAP_MAX_": "9"}, range(FEW, BLOCK)),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_max=9"}, range(FEW, BLOCK)),
    ],
)
def test_freed_memory_is_used_again(given: dict[str, str], pages: range):
    """In the process, its threads and the processes that it starts; the user's variables win."""
    code = "\n".join([KEEP, COUNT, "count()", THREAD, CHILD])
    theirs = {name: v for name, v in os.environ.items() if not name.startswith(("MALLOC", "GLIBC"))}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT, env=theirs | given, capture_output=True, check=True)
    counts = [int(line) for line in done.stdout.split()]
    assert len(counts) == 3
    assert all(count in pages for count in counts)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="options of glibc")
def test_kept_memory_can_be_released():
    """One block in use keeps the freed ones from the end of the heap."""
    code = f"""
from engine.processes.memory import keep_freed_memory, release_freed_memory
keep_freed_memory()
pages = lambda: int(open("/proc/self/statm").read().split()[1]) * {os.sysconf("SC_PAGE_SIZE")}
blocks, last = [bytearray(b"1") * {BLOCK // 8} for _ in range(8)], bytearray(b"1") * {BLOCK // 8}
del blocks
kept = pages()
release_freed_memory()
print(kept - pages())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert int(done.stdout) > 0.9 * BLOCK
