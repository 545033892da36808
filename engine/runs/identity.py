"""Identity of a run: one short hash for everything that can change its numbers.

    config        the settings, without those of paths, logging and the machine
    files         the contents of the files that they name, such as weights and body models
    images        the dataset's files by size and time; with images=content by content
    code          the source of the folders below, without comments and docstrings
    stage 1       the weights of the stage-1 run
    checkpoint    the file given with resume=

A target is hashed by the name of its class, so moving it to another module keeps the hash.
"""

import ast
import functools
import hashlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from engine import ROOT
from engine.cli import targets
from engine.runs import records
from engine.runs.records import digest

DATA = ("datasets", "models", "engine/features")
CODE = (*DATA, "losses", "metrics", "engine/training", "engine/evaluation", "engine/benchmarks")
MACHINE = (  # settings of `trainer`
    *("accelerator", "devices", "num_nodes", "strategy", "workers", "compile", "channels_last"),
    "checkpoint_every",
)
EXCLUDED = ("paths", "log", "resume", "rerun", "row", "trust", "images", "backbone", "benchmark")
LARGE = 1 << 28  # bytes; larger files are compared by size and time, not by content
FILE = "identity.json"


def parts(cfg: DictConfig, stage1: str | None = None) -> dict[str, str]:
    """Return {part: hash}; stage1 is the digest of the weights that the run builds on."""
    plain = targets.plain(cfg)
    targets.check(plain, plain["trust"])  # before any of them is imported
    given = plain["resume"] not in ("auto", "never")
    resumed = file_digest(Path(plain["resume"])) if given else None
    used = {key: value for key, value in plain.items() if key not in EXCLUDED}
    used["trainer"] = {k: v for k, v in used["trainer"].items() if k not in MACHINE}
    return {
        "config": digest(used, by_class=True),
        **data_parts(plain),
        "code": code(CODE, [name for _, name in targets.named(used)]),
        "stage 1": digest(stage1),
        "checkpoint": digest(resumed),
    }


def data_parts(plain: dict[str, Any]) -> dict[str, str]:
    """Return the hashes of the files that a plain config names, and of the dataset's images, as its
    class describes them (`fingerprint`)."""
    used = {key: value for key, value in plain.items() if key not in EXCLUDED}
    data = plain["dataset"]
    settings = {key: value for key, value in data.items() if not key.startswith("_")}
    own = getattr(targets.find(data["_target_"], [data["_target_"]]), "fingerprint", None)
    images = None if own is None else own(content=plain["images"] == "content", **settings)
    covered = "" if own is None else "dataset"
    return {"files": digest(files_of(used, covered)), "images": digest(images)}


def compare(folder: Path, cfg: DictConfig) -> str:
    """Return which files of a run have changed since it was trained, e.g. "files and images"."""
    try:
        known = records.read(folder / FILE, "Remove it to evaluate the run without it.")
    except FileNotFoundError:
        return ""
    found = data_parts(targets.plain(cfg))
    return " and ".join(part for part in found if known.get(part) != found[part])


def code(folders: Iterable[str], names: Iterable[str]) -> str:
    """Return a hash of the source of these folders and of the files that define foreign targets."""
    foreign = [
        targets.find(name, [name]) for name in names if not targets.inside(name, targets.OWN)
    ]
    files = {Path(inspect.getfile(target)) for target in foreign}
    paths = [*(ROOT / folder for folder in folders), *files]
    return digest(sorted(one for path in paths for one in _sources(path)))


@functools.cache
def _sources(path: Path) -> list[str]:
    """A hash of every Python file in a folder, or of a file, without comments and docstrings."""
    found = []
    for file in path.rglob("*.py") if path.is_dir() else [path]:
        tree = ast.parse(file.read_bytes())
        for node in ast.walk(tree):
            documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            if documented and ast.get_docstring(node, clean=False) is not None:
                node.body.pop(0)
        found.append(hashlib.sha256(ast.dump(tree).encode()).hexdigest())
    return found


def why_again(folder: Path, found: dict[str, str]) -> str:
    """Return what changed since the last finished run of the same settings; empty if none."""
    siblings = folder.parent.glob(f"{folder.name.split('-')[0]}-*/{FILE}")
    known = [s for s in siblings if s.parent != folder and (s.parent / "metrics.json").is_file()]
    for path in sorted(known, key=lambda path: -path.stat().st_mtime):
        try:
            before = records.read(path, "")
        except ValueError:
            continue
        changed = [part for part in found if before.get(part) != found[part]]
        if changed and not {"config", "checkpoint"} & set(changed):
            return f"{' and '.join(changed)} changed since {path.parent.name}"
    return ""


def files_of(plain: dict[str, Any], covered: str) -> list[str]:
    """Return the sorted digests of the files that a plain config names; of a folder, those of the
    arrays in it. Folders under the key `covered`, and packed stores, have a fingerprint."""
    files = []
    for key, value in targets.leaves(plain, lists=True):
        named = isinstance(value, str) and 0 < len(value) < 4096 and "\0" not in value
        if named and not key.endswith(("._target_", ".store")):
            files.append(path := Path(value))
            if not (covered and key.startswith(covered)) and path.parts and path.is_dir():
                files += [file for form in ("*.npz", "*.npy") for file in path.glob(form)]
    return sorted(digest for digest in map(file_digest, files) if digest is not None)


def file_digest(path: Path, large: int | None = LARGE) -> str | None:
    """Return a hash of a file's content, None where there is no file. A file of more than `large`
    bytes is compared by size and time."""
    if not path.is_file():
        return None
    found = path.stat()
    if large is not None and found.st_size > large:
        return f"{found.st_size} {found.st_mtime_ns}"
    return _file_digest(path, found.st_size, found.st_mtime_ns)


@functools.cache
def _file_digest(path: Path, size: int, time: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
