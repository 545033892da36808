"""What a run is: every part that can change one of its numbers, each as a short hash.

    config        the settings, without those that say where it runs, what it prints and saves
    files         the contents of the files that they name, weights and body models among them
    images        a manifest of the dataset's files (`images=content` reads them, times by default)
    code          the definitions that the run can reach (engine/runs/code.py)
    stage 1       the weights of the run that this one builds on
    checkpoint    what it goes on from, if another run's checkpoint was given

A name in the config counts by what it calls, not by the file that is in: moving code changes none.
"""

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from datasets.io.manifest import file_state
from engine.cli import targets
from engine.runs import code, records

# The settings of `trainer` that say where and how a run is computed, not what.
MACHINE = (
    "accelerator",
    "devices",
    "num_nodes",
    "strategy",
    "workers",
    "compile",
    "channels_last",
    "checkpoint_every",
)
ELSEWHERE = ("paths", "log", "resume", "rerun", "row", "trust", "images", "backbone", "benchmark")
LARGE = 1 << 28  # bytes; larger files are told apart by size and time, not by content
ARRAYS = ("*.npz", "*.npy")
FILE = "identity.json"


def parts(cfg: DictConfig, stage1: str | None = None) -> dict[str, str]:
    """{part: hash}; stage1 stands for the weights that the run builds on."""
    plain = targets.plain(cfg)
    content, resume = plain.get("images") == "content", plain["resume"]
    released = (plain.get("backbone") or {}).get("released")
    if released is not None:  # told apart by content, however large
        stage1 = file_digest(Path(released), large=None)
    for key in ELSEWHERE:
        plain.pop(key, None)
    for key in MACHINE:
        plain["trainer"].pop(key, None)
    foreign = resume not in ("auto", "never")
    return {
        "config": digest(_by_meaning(plain)),
        "files": digest(files_of(plain)),
        "images": digest(fingerprint(plain["dataset"], content)),
        "code": code.version(targets.calls(plain))[:16],
        "stage 1": digest(stage1),
        "checkpoint": digest(file_digest(Path(resume)) if foreign else None),
    }


def digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def key(found: dict[str, str]) -> str:
    """Ten digits that change with any part."""
    return digest(found)[:10]


def why_again(folder: Path, found: dict[str, str]) -> str:
    """What has changed since the last finished run of the same settings; empty if there is none."""
    siblings = [
        s / FILE for s in folder.parent.glob(f"{folder.name.split('-')[0]}-*") if s != folder
    ]
    known = [s for s in siblings if s.is_file() and (s.parent / "metrics.json").is_file()]
    for path in sorted(known, key=lambda path: -path.stat().st_mtime):
        try:
            before = records.read(path, "")
        except ValueError:
            continue
        changed = [part for part in found if before.get(part) != found[part]]
        if "config" not in changed and "checkpoint" not in changed and changed:
            return f"{' and '.join(changed)} changed since {path.parent.name}"
    return ""


def fingerprint(dataset: Any, content: bool = False) -> str | None:
    """What the dataset's class says of the files behind this config node, if it can."""
    settings = {k: v for k, v in dataset.items() if not k.startswith("_")}
    own = getattr(targets.find(dataset["_target_"], [dataset["_target_"]]), "fingerprint", None)
    return None if own is None else own(content=content, **settings)


def files_of(node: Any) -> list[str]:
    """The digests of the files that a config node names; of a folder outside `dataset`, those of
    the arrays in it."""
    found = []
    for setting, text in sorted(_strings(node)):
        path = Path(text)
        if setting.endswith(".store"):
            continue  # it has a digest of its own, part of the dataset's fingerprint
        found.append(file_digest(path))
        if not setting.startswith("dataset") and len(path.parts) and path.is_dir():
            arrays = sorted(file for form in ARRAYS for file in path.glob(form))
            found += [file_digest(file) for file in arrays]
    return [digest for digest in found if digest is not None]


def file_digest(path: Path, large: int | None = LARGE) -> str | None:
    """A hash of a file's content; None where there is no file. Files of more than `large` bytes are
    told apart by size and time."""
    found = file_state(path) if path.is_file() else None
    if found is None:
        return None
    if large is not None and found.size > large:
        return f"{found.size} {found.time}"
    return _file_digest(path, found.size, found.time)


@functools.cache
def _file_digest(path: Path, size: int, time: int) -> str:
    """For this process a file of the same size and time is the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _strings(node: Any, prefix: str = "") -> list[tuple[str, str]]:
    """(where, text) of every text that may name a file."""
    if isinstance(node, dict):
        items: Any = [(k, v) for k, v in node.items() if k != "_target_"]
    elif isinstance(node, list):
        items = [(str(k), v) for k, v in enumerate(node)]
    else:
        short = isinstance(node, str) and 0 < len(node) < 4096
        return [(prefix, node)] if short and "\0" not in node else []
    return [pair for k, v in items for pair in _strings(v, f"{prefix}.{k}" if prefix else str(k))]


def _by_meaning(node: Any) -> Any:
    """The config with the names of our own code as they are in their files."""
    if isinstance(node, dict):
        return {k: _called(v) if k == "_target_" else _by_meaning(v) for k, v in node.items()}
    return [_by_meaning(item) for item in node] if isinstance(node, list) else node


def _called(name: str) -> str:
    own = name.split(".")[0] in code.OWN
    return targets.find(name).__qualname__ if own and name in targets.NAMES else name
