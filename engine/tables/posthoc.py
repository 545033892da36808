"""Rows without training: the predictions of another row's runs, balanced afterwards.

    a row of a table's config: posthoc {of: row, and the settings of losses.Rebalancer}

The curve is fitted on the validation predictions of the run, or has the given sigma where there are
none. Predictions that are not stored (maps) are computed again, and balanced pixel by pixel. The
results are written to <run>/posthoc-<key>/, as those of a run.
"""

import time
from collections.abc import Mapping, Sequence
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
from engine.runs.provenance import meta
from engine.tables.table import write_npz
from engine.training import build
from engine.training.batches import evaluation_loader
from losses import Bins, Rebalancer
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
    if (found := runs.finished(own)) is not None:
        return found
    start = time.time()
    own.mkdir(exist_ok=True)
    cfg, metrics, rebalancer = fitted(folder, settings, trust)
    if (folder / runs.PREDICTIONS).is_file():
        samples = from_predictions(folder, own, rebalancer, metrics)
    else:
        samples = from_network(folder, rebalancer, metrics, trust)
    report = {f"test/{name}": float(value) for name, value in metrics.compute().items()}
    replicates = metrics.resample(samples, bootstrap_weights(len(samples), cfg.log.replicates))
    write_npz(own / runs.REPLICATES, {name: value.numpy() for name, value in replicates.items()})
    with atomic_write(own / "config.yaml") as file:
        file.write((folder / "config.yaml").read_bytes())
    sigma = getattr(rebalancer, "sigma", torch.tensor(torch.nan))  # a stretch has none
    about = {"seconds": time.time() - start, "posthoc": dict(settings)}
    about["sigma"] = None if sigma.isnan().any() else sigma.tolist()
    records.write(own / "metrics.json", {"metrics": report, **about, "meta": meta()})
    return runs.finished(own) or {}


def fitted(folder: Path, settings: Mapping[str, Any], trust: Any) -> tuple[Any, Any, Any]:
    """Return a run's config and metrics, and the Rebalancer, fitted on validation predictions, or
    the map of poses that `stretch` describes."""
    cfg: Any = runs.read_config(folder, trust)
    train = build.dataset(cfg, "train")
    metrics = targets.make(cfg.metrics, trust, train_labels=train.labels)
    if "stretch" in settings:
        from engine.benchmarks.bodies.poses import Stretch

        return cfg, metrics, Stretch(cfg.metrics.mean, **settings)
    rebalancer = Rebalancer(prior_of(train), **settings)
    path = folder / runs.PREDICTIONS
    found = read_npz(path, advice=runs.AGAIN) if path.is_file() else {}
    if "val_pred" in found:
        rebalancer.fit(found["val_pred"].ravel(), found["val_target"].ravel())
    elif not rebalancer.given:
        raise ValueError(f"{folder} has no validation predictions to fit on; give sigma.")
    return cfg, metrics, rebalancer


def front(folder: Path, strengths: Sequence[float], settings: Mapping[str, Any], trust: Any) -> Any:
    """Return the sigma in use and {strength: test metrics} of a run with stored predictions."""
    _, metrics, rebalancer = fitted(folder, settings, trust)
    found = read_npz(folder / runs.PREDICTIONS, advice=runs.AGAIN)
    reports = {}
    for strength in strengths:
        metrics.reset()
        pred = torch.from_numpy(rebalancer.at(strength=strength)(found["test_pred"]))
        metrics.update(pred, torch.from_numpy(found["test_target"]))
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


def from_predictions(folder: Path, own: Path, rebalancer: Any, metrics: Any) -> Any:
    """Balance the test predictions, update the metrics with them and store them."""
    found = read_npz(folder / runs.PREDICTIONS, advice=runs.AGAIN)
    pred = rebalancer(found["test_pred"]).astype(np.float32)
    target = torch.from_numpy(found["test_target"])
    metrics.update(torch.from_numpy(pred), target)
    write_npz(own / runs.PREDICTIONS, {**found, "test_pred": pred})
    return metrics.samples(torch.from_numpy(pred), target)


def from_network(folder: Path, rebalancer: Rebalancer, metrics: Any, trust: Any) -> Any:
    """Predict the test maps again, and balance every pixel."""
    from engine.benchmarks.depth import Maps

    maps, samples = Maps(folder, trust), []
    for batch in evaluation_loader(maps.source, maps.cfg.trainer.eval_batch_size, 0, False, 0, 1):
        with torch.no_grad():
            pred = rebalancer(maps.task.predict(batch))
        metrics.update(pred, batch["target"], batch["mask"])
        samples.append(metrics.samples(pred, batch["target"], batch["mask"]))
    return torch.cat(samples)
