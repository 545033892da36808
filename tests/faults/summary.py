"""The campaign in numbers: faults by kind, kills by script and signal, and every fault by name."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.io.files import atomic_write
from engine import ROOT
from engine.runs import provenance
from tests.faults.kills import SCRIPTS, SIGNALS

One = Mapping[str, Any]  # what became of a fault


def kinds(found: Sequence[One]) -> list[list[Any]]:
    """(kind, faults, as they should be, seconds) of each."""
    names = dict.fromkeys(one["kind"] for one in found)
    of = {name: [one for one in found if one["kind"] == name] for name in names}
    return [[name, len(ones), good(ones), seconds(ones)] for name, ones in of.items()]


def kills(found: Sequence[One]) -> list[list[Any]]:
    """(script, then of each signal how many ended in the same files, out of how many)."""

    def cell(script: str, signal: str) -> str:
        ones = [one for one in found if one["fault"].startswith(f"{script}.py, {signal},")]
        return f"{good(ones)} of {len(ones)}"

    return [[f"{s.name}.py", *(cell(s.name, sign.name) for sign in SIGNALS)] for s in SCRIPTS]


def good(ones: Iterable[One]) -> int:
    return sum(one["good"] for one in ones)


def seconds(ones: Iterable[One]) -> int:
    return round(sum(one["seconds"] for one in ones))


def publish(folder: Path, found: Sequence[One], known: int, jobs: int) -> None:
    """faults.md: what became of these faults, out of so many `known` ones."""
    meta = provenance.meta()
    here = f"{ROOT}/"  # a machine's own folders are not published
    every = [
        [one["kind"], one["fault"], one["happened"].replace(here, ""), ("no", "yes")[one["lost"]]]
        for one in found
    ]
    text = [
        f"{len(found)} of {known} faults were replayed, {good(found)} are as they should be. The "
        f"sum of their times is {seconds(found) / 60:.0f} minutes, {jobs} at a time "
        f"(`{meta['command']}`, commit {str(meta['commit'])[:10]}, {meta['machine']}).",
        *rendered(["kind", "faults", "as they should be", "seconds"], kinds(found)),
        "Kills after the first checkpoint that ended, started again, in the files of an unbroken "
        "run, with no process and no temporary file left:",
        *rendered(["script", *(sign.name for sign in SIGNALS)], kills(found)),
        *rendered(["kind", "fault", "what happened", "lost"], every),
    ]
    with atomic_write(folder / "faults.md") as file:
        file.write(("\n".join(text) + "\n").encode())


def rendered(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """A table in Markdown between empty lines; nothing in a cell is markup."""
    lines = [head, ["---"] * len(head), *rows]
    return ["", *("| " + " | ".join(map(plain, line)) + " |" for line in lines), ""]


def plain(cell: Any) -> str:
    text = str(cell).replace("&", "&amp;").replace("<", "&lt;")
    for sign in "|*_`[]":
        text = text.replace(sign, f"\\{sign}")
    return text if str(cell) != "---" else "---"
