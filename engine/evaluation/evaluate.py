"""One pass over a split: every sample once over all ranks, metrics summed, predictions kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import nn
from torch.utils.data import DataLoader

from datasets.io.files import atomic_write
from engine.cli import targets
from engine.runs import checkpoint, identity
from engine.runs import folder as runs
from engine.training import build
from engine.training.batches import evaluation_loader
from losses import WeightedLoss
from metrics.report import bootstrap_weights
from models.released import load


@torch.no_grad()
def evaluate(
    fabric: Fabric,
    task: Any,
    loader: DataLoader,
    metrics: Any,
    keep: bool = False,
    samples: bool = False,
) -> tuple[dict[str, float], dict[str, NDArray]]:
    """The report of `metrics`, and if `keep` the arrays index (N,), pred (N, D), target (N, D), if
    `samples` what each sample adds to the report (N, ...).

    The task is used outside any distributed wrapper, and left in the mode it had.
    """
    was_training = task.training
    task.eval()
    metrics = metrics.to(fabric.device)
    metrics.reset()
    rows: list[dict[str, NDArray]] = []
    for raw in loader:
        batch = fabric.to_device(raw)
        with fabric.autocast():
            pred = task.predict(batch)
        masked = (batch["mask"],) if "mask" in batch else ()  # of pixels that are measured
        metrics.update(pred, batch["target"], *masked)
        arrays = {"pred": pred.float(), "target": batch["target"].float()} if keep else {}
        if samples:
            arrays["samples"] = metrics.samples(pred, batch["target"], *masked)
        if arrays:
            arrays["index"] = batch["meta"]["index"]
            rows.append({name: array.cpu().numpy() for name, array in arrays.items()})
    report = {key: float(value) for key, value in metrics.compute().items()}
    task.train(was_training)
    return report, _in_order(fabric, rows) if keep or samples else {}


def finished_run(
    folder: Path, which: str = "best", trust: Sequence[str] | None = None
) -> tuple[DictConfig, Any, Any]:
    """The config of a run, its task with the weights of a checkpoint, and its metrics.

    trust: packages that its config may call besides this project's own; see engine/cli/targets.py.
    """
    cfg: Any = runs.read_config(folder, trust)
    cfg.features = {"mode": "none"}  # images are looked at, not tables
    train = build.dataset(cfg, "train")
    labels, counts = train.labels, getattr(train, "label_counts", None)
    backbone = None if cfg.backbone is None else Path(cfg.backbone.checkpoint)
    known = (cfg.backbone or {}).get("digest")
    if backbone is not None and known not in (None, identity.file_digest(backbone)):
        raise ValueError(
            f"{backbone}: stage 1 is gone or has been trained again since {folder} was made on it. "
            "Run the same stage 2 again; it is trained on the new one."
        )
    task = build.task(cfg, labels, backbone, counts)
    weights = folder / "checkpoints" / f"{which}.pt"
    build.read_state(task, checkpoint.read(weights)["task"], weights)
    return cfg, task.eval(), targets.make(cfg.metrics, trust, train_labels=labels)


def released_model(path: Path, layout: str, cfg: DictConfig) -> tuple[Any, Any]:
    """A released checkpoint as a task, and the metrics of the configured dataset, which need
    no training input."""
    labels = build.shot_labels(cfg)
    loss = WeightedLoss(error="l1")
    trust, model = cfg.get("trust"), load(path, layout)
    task: nn.Module = targets.make(cfg.task, trust, model=model, loss=loss)
    return task.eval(), targets.make(cfg.metrics, trust, train_labels=labels)


def report(
    fabric: Fabric, cfg: DictConfig, task: Any, metrics: Any, split: str, batch_size: int
) -> dict[str, float]:
    """The metrics of one split of the config's dataset."""
    loader = evaluation_loader(
        build.dataset(cfg, split), batch_size, 0, False, fabric.global_rank, fabric.world_size
    )
    return evaluate(fabric, fabric.to_device(task), loader, metrics)[0]


def save_predictions(path: Path, splits: dict[str, dict[str, NDArray]]) -> None:
    """predictions.npz: <split>_pred and <split>_target, rows in the dataset's order."""
    arrays = {
        f"{split}_{name}": array
        for split, predicted in splits.items()
        for name, array in predicted.items()
        if name in ("pred", "target")
    }
    with atomic_write(path) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def save_draws(path: Path, metrics: Any, samples: NDArray, number: int) -> None:
    """draws.npz: every metric on `number` draws of the test samples, (number,) each; the same draws
    for every run on the same test set.
    """
    weights = bootstrap_weights(len(samples), number)
    values = metrics.cpu().resample(torch.from_numpy(samples), weights)
    with atomic_write(path) as file:
        np.savez_compressed(file, **{key: value.numpy() for key, value in values.items()})


def _in_order(fabric: Fabric, rows: list[dict[str, NDArray]]) -> dict[str, NDArray]:
    parts = [rows]
    if fabric.world_size > 1:
        parts = [[] for _ in range(fabric.world_size)]
        torch.distributed.all_gather_object(parts, rows)
    every = [row for part in parts for row in part]
    arrays = {name: np.concatenate([row[name] for row in every]) for name in every[0]}
    order = np.argsort(arrays["index"])
    return {name: array[order] for name, array in arrays.items()}
