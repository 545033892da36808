"""Checkpoints: written atomically, and read without running code.

Reading unpickles tensors and plain containers only (`weights_only=True`).
"""

import contextlib
import io
import zipfile
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from datasets.io.files import atomic_write
from engine.runs import folder as runs
from models.released import read_plain

FORMAT = "balanced-regression checkpoint 1"
AGAIN = "If it belongs to a run, remove the run's folder and run the same command again."


def write(path: Path, content: dict[str, Any]) -> None:
    """Save the content; on failure the previous checkpoint is kept."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **content}, buffer)
    with atomic_write(path) as file:
        file.write(buffer.getbuffer())


def read(path: Path, run: str | None = None) -> dict[str, Any]:
    """Return a checkpoint that `write` wrote; anything else is an error that names the file.

    run: the row, preset and seed that it must be of.
    """
    try:
        content = read_plain(path)
    except ValueError as error:
        raise ValueError(f"{error} {AGAIN}") from error
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():  # torch does not compare the checksums
            raise ValueError(f"{path}: damaged, the checksum of {damaged} does not match. {AGAIN}")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = list(content)[:5] if isinstance(content, dict) else type(content).__name__
        raise ValueError(
            f"{path}: expected a checkpoint of this engine, found {found}. Evaluate a released "
            "checkpoint with scripts/evaluate.py released=<file>."
        )
    if run is not None and content.get("run", run) != run:
        raise ValueError(f"{path}: a checkpoint of {content['run']}, not of {run}. {AGAIN}")
    return content


def save_network(cfg: DictConfig) -> None:
    """Write the best epoch's network of a finished run, with its metrics, seed and provenance, to a
    file of a few megabytes for models.hmr.LiteHMR(weights=).

    Weights are rounded to half precision to halve the file; 1-D tensors (batch-norm, biases) are
    small and stay in full precision.
    """
    run, path = Path(cfg.run), Path(cfg.output)
    done = runs.finished(run)
    if done is None or done.get("divergence"):
        raise FileNotFoundError(
            f"{run}: expected the folder of a finished run, as printed by train.py; it has no "
            "metrics.json, or the run diverged."
        )
    saved = read(run / "checkpoints" / "best.pt")["task"].items()
    state = {k.removeprefix("model."): v for k, v in saved if k.startswith("model.")}
    half = {key: v.half() if v.ndim > 1 else v for key, v in state.items()}
    about = {key: done[key] for key in ("metrics", "seed", "meta")}
    write(path, {"state_dict": half, "about": about})
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MB")
