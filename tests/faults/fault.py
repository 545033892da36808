"""What a fault is, and what most of them need."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.faults.bench import Bench, Done

# Lines of the log, and those with which Fabric starts its ranks.
LOGGED = re.compile(r"\d{4}-\d\d-\d\d |Initializing dist|-{9}|distributed_backend|All distr|$")


class Fault(NamedTuple):
    kind: str
    name: str
    act: Callable[[Bench], tuple[str, bool, bool]]  # what happened, lost, as it should be
    quick: bool = False


def refused(done: Done, *words: str) -> tuple[str, bool, bool]:
    """It ends with code 1 and one paragraph that holds these words, and no traceback."""
    lines = [line for line in done.err.splitlines() if not LOGGED.match(line)]
    text = "\n".join(lines).strip()
    short = len(text.splitlines()) <= 6 and "Traceback" not in text
    good = done.code == 1 and short and all(word in text for word in words)
    return f"exit {done.code}: {beginning(text)}", False, good


def beginning(text: str) -> str:
    """The beginning of what was told, without the places of the bench and of Python."""
    return re.sub(r"[^\s'\"=]*/(bench)-\d+|/\S*/(site-packages)", r"\1\2", text)[:150]


def finished_run(bench: Bench) -> Path:
    """The folder of a finished tiny run."""
    found = list(bench.outputs.rglob("metrics.json"))
    if not found:
        done = bench.train()
        assert done.code == 0, done.err
        found = list(bench.outputs.rglob("metrics.json"))
    return found[0].parent


STAGE2 = ("experiment=imdb_wiki/bmc", "features=cached", "features.views=1")


def packing(bench: Bench) -> list[str]:
    root = bench.data / "imdb_wiki"
    return ["source=imdb_wiki", f"root={root}", "pack=16"]
