"""A run is a config; its folder is named after it, so it is found again instead of being run again.

    <outputs>/<name>/<preset>/seed<seed>-<key>/
        config.yaml  metrics.json  predictions.npz  draws.npz  checkpoints/{last,best}.pt  events...
        train.log

The key is a hash of everything that can change a number (engine/runs/identity.py). A run with
metrics.json is finished; one that diverged has no metrics in it but says so.
"""

import contextlib
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from datasets.io.files import lock
from engine.cli import targets
from engine.runs import records

PREDICTIONS, DRAWS = "predictions.npz", "draws.npz"
AGAIN = "Start the same command with rerun=true, which makes the run again"


def run_folder(cfg: DictConfig, key: str) -> Path:
    """Where the run of this config lives."""
    return Path(cfg.paths.outputs) / cfg.name / cfg.preset / f"seed{cfg.seed}-{key}"


def read_config(folder: Path, trust: Sequence[str] | None) -> DictConfig:
    """config.yaml of a run that may come from elsewhere; what it calls is checked.

    trust: packages that whoever reads it trusts; what the folder says about that does not count.
    """
    path = folder / "config.yaml"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file; run= takes the folder that train.py printed"
        )
    try:
        plain = targets.plain(OmegaConf.load(path))
    except Exception as error:  # damaged YAML fails in many ways
        raise ValueError(
            f"{path}: expected the config of a run; {type(error).__name__}: {error}. Run it again."
        ) from error
    if not isinstance(plain, dict):
        raise ValueError(f"{path}: expected the config of a run, got {plain!r:.60}. Run it again.")
    targets.check(plain, trust)
    cfg = OmegaConf.create({**plain, "trust": list(trust or ())})
    missing = [name for name in ("dataset", "model", "loss", "metrics") if name not in cfg]
    if missing:
        raise ValueError(f"{path}: expected the config of a run; it has no {missing[0]}.")
    return cfg


def finished(folder: Path) -> dict[str, Any] | None:
    """The content of metrics.json and the folder, if the run is finished; else None."""
    path = folder / "metrics.json"
    if not path.is_file():
        return None
    advice = f"{AGAIN}, or remove {path}, after which it goes on from its checkpoint."
    content = records.read(path, advice)
    if not isinstance(content.get("metrics"), dict) or "meta" not in content:
        raise ValueError(f"{path}: expected the metrics of a run, got {content!r:.60}. {advice}")
    return {**content, "folder": str(folder)}


def finish(folder: Path, content: dict[str, Any]) -> None:
    """Write metrics.json, which makes the run a finished one."""
    metrics = {k: finite_or_none(v) for k, v in content["metrics"].items()}
    records.write(folder / "metrics.json", {**content, "metrics": metrics})


def finite_or_none(value: float | None) -> float | None:
    """JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None


def clear(folder: Path) -> None:
    """Forget what a run has made, for rerun=true."""
    for name in ("metrics.json", "identity.json", PREDICTIONS, DRAWS):
        (folder / name).unlink(missing_ok=True)
    for events in folder.glob("events.*"):
        events.unlink()
    if (folder / "checkpoints").is_dir():
        shutil.rmtree(folder / "checkpoints")


def is_main_process() -> bool:
    """Whether this is the process that writes, also before any distributed group exists."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0))) == 0


@contextlib.contextmanager
def locked(folder: Path, holder: bool = True) -> Iterator[None]:
    """One job at a time in a folder: parallel sweeps share a stage 1, and the second waits for it.

    Of the processes of one job only the `holder` takes the lock. It is gone with the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        if holder:
            lock(file)
            for leftover in folder.rglob(".*.tmp"):  # of a writer that was killed
                leftover.unlink()
        yield
