"""A run is a config; its folder is named after it, so it is found again instead of being run again.

    <outputs>/<name>/<preset>/seed<seed>-<key>/
        config.yaml  metrics.json  predictions.npz  draws.npz  checkpoints/{last,best}.pt  events...
        train.log

The key is a hash of everything in the config that can change a number: not where it runs, how often
it saves or what it prints, but the contents of the data files it names, and the key of the stage 1
that it builds on. A run with metrics.json is finished.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from datasets.files import whole

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
PREDICTIONS, DRAWS = "predictions.npz", "draws.npz"
LARGE = 1 << 28  # bytes; larger files are told apart by size and time, not by content


def folder(cfg: DictConfig, key: str) -> Path:
    """Where the run of this config lives."""
    return Path(cfg.paths.outputs) / cfg.name / cfg.preset / f"seed{cfg.seed}-{key}"


def identity(cfg: DictConfig, stage1: str | None = None) -> str:
    """Ten digits that change with whatever can change a number; stage1 is the key of stage 1."""
    plain: Any = OmegaConf.to_container(cfg, resolve=True)
    for key in ("paths", "log", "resume", "rerun", "row", "benchmark"):
        plain.pop(key, None)
    for key in MACHINE:
        plain["trainer"].pop(key, None)
    released = (plain.get("backbone") or {}).get("released")
    if released is not None:  # told apart by content, however large
        stage1 = file_digest(Path(released), large=None)
    plain |= {"files": files_of(plain["dataset"]), "backbone": stage1}
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def files_of(node: Any) -> list[str]:
    """The digests of the files that a config node names."""
    digests = [file_digest(Path(text)) for text in sorted(_strings(node))]
    return [digest for digest in digests if digest is not None]


def file_digest(path: Path, large: int | None = LARGE) -> str | None:
    """A hash of a file's content; None where there is no file. Files of more than `large` bytes are
    told apart by size and time."""
    if not path.is_file():
        return None
    if large is not None and path.stat().st_size > large:
        return f"{path.stat().st_size} {path.stat().st_mtime_ns}"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def finished(place: Path) -> dict[str, Any] | None:
    """The content of metrics.json and the folder, if the run is finished; else None."""
    path = place / "metrics.json"
    if not path.is_file():
        return None
    try:
        return {**json.loads(path.read_text()), "folder": str(place)}
    except ValueError as error:
        raise ValueError(
            f"{path}: expected JSON, got {error}; remove it or use rerun=true"
        ) from error


def finish(place: Path, content: dict[str, Any]) -> None:
    """Write metrics.json, which makes the run a finished one."""
    metrics = {k: finite_or_none(v) for k, v in content["metrics"].items()}
    with whole(place / "metrics.json") as file:
        file.write(json.dumps({**content, "metrics": metrics}, indent=2).encode() + b"\n")


def finite_or_none(value: float | None) -> float | None:
    """JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None


def clear(place: Path) -> None:
    """Forget what a run has made, for rerun=true."""
    for name in ("metrics.json", PREDICTIONS, DRAWS):
        (place / name).unlink(missing_ok=True)
    for events in place.glob("events.*"):
        events.unlink()
    if (place / "checkpoints").is_dir():
        shutil.rmtree(place / "checkpoints")


def is_main_process() -> bool:
    """Whether this is the process that writes, also before any distributed group exists."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0))) == 0


@contextlib.contextmanager
def locked(place: Path, holder: bool = True) -> Iterator[None]:
    """One job at a time in a folder: parallel sweeps share a stage 1, and the second waits for it.

    Of the processes of one job only the `holder` takes the lock. It is gone with the process.
    """
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as file:
        if holder:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _strings(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [text for value in node.values() for text in _strings(value)]
    if isinstance(node, list):
        return [text for value in node for text in _strings(value)]
    return [node] if isinstance(node, str) else []
