"""The folder of a run, named after its identity, so that a finished run is found again.

    <outputs>/<name>/<preset>/seed<seed>-<dataset>-<key>/
        config.yaml  metrics.json  predictions.npz  replicates.npz  checkpoints/{last,best}.pt
        events...  train.log

The key is a hash of everything that can change a number (engine/runs/identity.py). A run with
metrics.json is finished; that of a diverged run holds the reason and no metrics.
"""

import contextlib
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from datasets.io.files import lock, refuse_links
from engine.cli import targets
from engine.runs import records

PREDICTIONS, REPLICATES = "predictions.npz", "replicates.npz"
AGAIN = "Remove the folder of this run and run the same command again"
RANKS = {  # {variable of a launcher: its variables with ranks}
    "TORCHELASTIC_RUN_ID": ("RANK",),  # torchrun
    "SLURM_PROCID": ("SLURM_PROCID",),
    "MASTER_ADDR": ("NODE_RANK", "LOCAL_RANK"),  # by hand on each node
}
LARGEST = 1 << 20  # bytes of a config.yaml


def read_config(folder: Path, trust: Sequence[str] | None) -> DictConfig:
    """Return config.yaml of a run folder, which may come from somebody else, as checked data.

    trust: packages that the reader allows; the folder has no say in that.
    """
    plain = read_plain_config(folder)
    targets.check(plain, trust)
    return OmegaConf.create({**plain, "trust": list(trust or ())})


def read_plain_config(folder: Path) -> dict[str, Any]:
    """Return config.yaml as plain data, which names code but calls none."""
    path = folder / "config.yaml"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; run= takes the folder that train.py prints")
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST} bytes")
        text = path.read_text()
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise ValueError(
                    "YAML anchors and aliases are not allowed"
                )  # may grow without bound
            if isinstance(event, yaml.ScalarEvent) and "${" in event.value:  # may run code
                raise ValueError(f"interpolations are not allowed, got {event.value!r:.60}")
        plain = yaml.safe_load(text)
        if not isinstance(plain, dict):
            raise ValueError(f"got {plain!r:.60}")
        missing = {"dataset", "model", "loss", "metrics"} - plain.keys()
        if missing:
            raise ValueError(f"it has no {min(missing)}")
    except Exception as error:  # damaged YAML fails in many ways
        raise ValueError(f"{path}: expected the config of a run; {error}. Rerun it.") from error
    return plain


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the content of metrics.json and the folder if the run is finished, else None."""
    path = folder / "metrics.json"
    if not path.is_file():
        return None
    advice = f"{AGAIN}, or remove {path} to resume from the checkpoint."
    content = records.read(path, advice)
    if not isinstance(content.get("metrics"), dict) or "meta" not in content:
        raise ValueError(f"{path}: expected the metrics of a run, got {content!r:.60}. {advice}")
    return {**content, "folder": str(folder)}


def brief(metrics: Mapping[str, float | None], names: Iterable[str]) -> list[tuple[str, str]]:
    """(test/name, value) of these metrics; "-" for a group without samples."""
    values = {f"test/{name}": metrics.get(f"test/{name}") for name in names}
    return [
        (k, "-" if v is None or not math.isfinite(v) else f"{v:.3f}") for k, v in values.items()
    ]


def clear(folder: Path) -> None:
    """Delete the results and checkpoints of a run."""
    names = ("metrics.json", "identity.json", PREDICTIONS, REPLICATES)
    for path in [*(folder / name for name in names), *folder.glob("events.*")]:
        path.unlink(missing_ok=True)
    if (folder / "checkpoints").is_dir():
        shutil.rmtree(folder / "checkpoints")


def is_main_process() -> bool:
    """Whether this process writes files, also before any distributed group exists.

    The ranks are those that Lightning Fabric reads. Of several launchers, the first one counts.
    """
    for launcher, ranks in RANKS.items():
        if launcher in os.environ:
            return not any(int(os.environ.get(rank, 0)) for rank in ranks)
    return True


@contextlib.contextmanager
def locked(folder: Path, holder: bool = True) -> Iterator[None]:
    """One job at a time in a folder: parallel sweeps share a stage-1 run, and the second waits.

    Only the `holder` among the processes of a job takes the lock, which ends with the process.
    """
    refuse_links(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        if holder:
            try:
                lock(file, wait=False)
            except BlockingIOError:
                from engine.training.log import print_message

                print_message(f"{folder}: another process runs this; waiting for it to end.")
                lock(file)
            for leftover in folder.rglob(".*.tmp"):  # of a writer that was killed
                leftover.unlink()
        yield
