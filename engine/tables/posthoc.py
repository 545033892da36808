"""Rows without training: the predictions of another row's runs, balanced afterwards.

    a row of a table's config: posthoc {of: row, and the settings of losses.Rebalancer}

The curve is fitted on the validation predictions of the run, or has the given sigma where there are
none. Predictions that are not stored (maps) are computed again, and balanced pixel by pixel. The
results are written to <run>/posthoc-<key>/, as those of a run.
"""

import dataclasses
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from datasets.io.arrays import read_npz
from datasets.io.files import atomic_write
from engine.cli import targets
from engine.runs import folder as runs
from engine.runs import records
from engine.tables.table import write_npz
from engine.training import build
from losses import Bins, Rebalancer
from losses.diagnosis.leverage import FEWEST, leverage
from metrics.report import bootstrap_weights


def add_rows(
    rows: Mapping[str, Any],
    wanted: dict[str, list[DictConfig]],
    done: dict[str, list[dict[str, Any]]],
    trust: Sequence[str] | None,
) -> None:
    """Fill in the runs of the post-hoc rows: one for each run of the row that they balance."""
    for name, row in rows.items():
        if not row.get("posthoc"):
            continue
        settings = {**targets.plain(row["posthoc"]), **(row.get("changes") or {})}  # of a sweep
        source = settings.pop("of")
        if source not in done:
            raise ValueError(f"Row {name!r} balances {source!r}, which is not a row; add it.")
        wanted[name] = wanted[source]
        done[name] = [
            one if one.get("divergence") else balanced(Path(one["folder"]), settings, trust)
            for one in done[source]
        ]


def balanced(folder: Path, settings: Mapping[str, Any], trust: Any = None) -> dict[str, Any]:
    """Return the result of a finished run with balanced predictions, from disk if it is there."""
    weights = records.read(folder / "metrics.json", runs.AGAIN).get("weights")
    key = records.digest({**settings, "weights": weights})[:8]
    own = folder / f"posthoc-{key}"
    if (done := runs.finished(own)) is not None:
        return done
    start = time.time()
    own.mkdir(exist_ok=True)
    cfg, metrics, rebalancer, stored, train = fitted(folder, settings, trust)
    removed = {}
    for pred, *target in predictions(folder, rebalancer, stored, trust):
        metrics.update(pred, *target)
        if stored:
            write_npz(own / runs.PREDICTIONS, {**stored, "test_pred": pred.numpy()})
        if getattr(train, "ranges", []):  # labels of one dimension: all samples are one batch
            from engine.training.protocol import errors

            removed = errors(pred.numpy(), target[0].numpy(), train.ranges)
    samples = metrics.stored()
    report = {f"test/{name}": float(value) for name, value in (metrics.compute() | removed).items()}
    replicates = metrics.resample(samples, bootstrap_weights(len(samples), cfg.log.replicates))
    write_npz(own / runs.REPLICATES, {name: value.numpy() for name, value in replicates.items()})
    with atomic_write(own / "config.yaml") as file:
        file.write((folder / "config.yaml").read_bytes())
    sigma = getattr(rebalancer, "sigma", torch.tensor(torch.nan))  # a stretch has none
    about = {"seconds": time.time() - start, "posthoc": dict(settings)}
    about["sigma"] = None if sigma.isnan().any() else sigma.tolist()
    enough = len(stored.get("val_pred", ())) >= FEWEST
    if enough and isinstance(rebalancer, Rebalancer):
        held_out = (stored[f"val_{name}"].ravel().astype(float) for name in ("pred", "target"))
        with warnings.catch_warnings(action="ignore"):  # that balancing cannot help
            about["leverage"] = dataclasses.asdict(leverage(prior_of(train), *held_out))
    records.write(own / "metrics.json", {"metrics": report, **about, "meta": records.meta()})
    return runs.finished(own) or {}


def fitted(folder: Path, settings: Mapping[str, Any], trust: Any) -> tuple[Any, ...]:
    """Return a run's config and metrics, the Rebalancer, fitted on validation predictions, or the
    map of poses that `stretch` describes, the stored predictions, if any, and the training split.
    """
    cfg: Any = runs.read_config(folder, trust)
    train = build.dataset(cfg, "train")
    metrics = build.metrics(cfg, train)
    path = folder / runs.PREDICTIONS
    stored = read_npz(path, advice=runs.AGAIN) if path.is_file() else {}
    if "stretch" in settings:
        from engine.benchmarks.bodies.poses import Stretch

        return cfg, metrics, Stretch(cfg.metrics.mean, **settings), stored, train
    rebalancer = Rebalancer(prior_of(train), **settings)
    if "val_pred" in stored:
        rebalancer.fit(stored["val_pred"].ravel(), stored["val_target"].ravel())
    elif not rebalancer.given:
        raise ValueError(f"{folder} has no validation predictions to fit on; give sigma.")
    return cfg, metrics, rebalancer, stored, train


def predictions(folder: Path, rebalancer: Any, stored: Any, trust: Any) -> Iterator[tuple]:
    """Yield balanced test predictions and targets, once if they are stored, else a batch of maps at
    a time, with masks."""
    if stored:
        pred = rebalancer(stored["test_pred"]).astype(np.float32)
        yield torch.from_numpy(pred), torch.from_numpy(stored["test_target"])
        return
    from engine.benchmarks.depth import Maps

    for pred, *target in Maps(folder, trust).batches():
        yield rebalancer(pred), *target


def front(folder: Path, strengths: Sequence[float], settings: Mapping[str, Any], trust: Any) -> Any:
    """Return the sigma in use and {strength: test metrics} of a run with stored predictions."""
    _, metrics, rebalancer, stored, _ = fitted(folder, settings, trust)
    if "test_pred" not in stored:
        raise ValueError(f"{folder} has no {runs.PREDICTIONS}; train it with log.predictions=true.")
    reports = {}
    for strength in strengths:
        metrics.reset()
        pred = torch.from_numpy(rebalancer.at(strength=strength)(stored["test_pred"]))
        metrics.update(pred, torch.from_numpy(stored["test_target"]))
        reports[strength] = {name: float(value) for name, value in metrics.compute().items()}
    return float(rebalancer.sigma), reports


def prior_of(train: Any) -> Any:
    """Return the training labels, or, if they are counted (pixels), their bins."""
    counts = getattr(train, "label_counts", None)
    labels = np.asarray(train.labels, dtype=np.float64)
    if labels.shape[1:] not in ((), (1,)):
        raise ValueError(
            f"Post-hoc rows need labels of one dimension, got {labels.shape[1]}; leave them out, "
            "or give `stretch` for poses."
        )
    return labels.ravel() if counts is None else Bins(labels.ravel(), np.asarray(counts, float))
