"""Metrics and predictions of a split: every sample once over all ranks, then the run's results."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import nn
from torch.utils.data import DataLoader

from datasets.io.files import MAX_BYTES, MAX_PIXELS, atomic_write, writable
from engine.cli import targets
from engine.runs import checkpoint, identity, records
from engine.runs import folder as runs
from engine.training import build
from engine.training.batches import evaluation_loader
from engine.training.divergence import LOWER
from engine.training.log import print_message
from metrics.report import bootstrap_weights
from models.released import load

if TYPE_CHECKING:
    from engine.training.loop import Loop


@torch.no_grad()
def evaluate(
    fabric: Fabric,
    task: Any,
    loader: DataLoader,
    metrics: Any,
    keep: bool = False,
    samples: bool = False,
) -> tuple[dict[str, float], dict[str, NDArray]]:
    """Return the report of `metrics`; with `keep` also the arrays index (N,), pred (N, D) and
    target (N, D); with `samples` also what each sample adds to the report, (N, ...).

    The task is called outside any distributed wrapper, and its mode is restored.
    """
    was_training = task.training
    task.eval()
    metrics = metrics.to(fabric.device)
    metrics.reset()
    found: list[dict[str, NDArray]] = []
    for raw in loader:
        batch = fabric.to_device(raw)
        with fabric.autocast():
            pred = task.predict(batch)
        masked = (batch["mask"],) if "mask" in batch else ()  # of measured pixels
        metrics.update(pred, batch["target"], *masked)
        arrays = {"pred": pred.float(), "target": batch["target"].float()} if keep else {}
        if samples:
            arrays["samples"] = metrics.rows[-1].reshape(-1, *metrics.shape)  # as `update` stored
        if arrays:
            arrays["index"] = batch["meta"]["index"]
            found.append({name: array.cpu().numpy() for name, array in arrays.items()})
    report = {key: float(value) for key, value in metrics.compute().items()}
    task.train(was_training)
    if not (keep or samples):
        return report, {}
    of_ranks = [found] * fabric.world_size
    if fabric.world_size > 1:
        torch.distributed.all_gather_object(of_ranks, found)
    batches = [batch for rank in of_ranks for batch in rank]
    arrays = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    order = np.argsort(arrays["index"])  # the dataset's
    return report, {name: array[order] for name, array in arrays.items()}


def write_results(loop: "Loop") -> None:
    """Evaluate the chosen epoch and write its predictions, figures and metrics.json."""
    cfg, log, folder = loop.cfg, loop.log, loop.folder
    best = folder / "checkpoints" / "best.pt"
    build.read_state(loop.task, checkpoint.read(best, loop.run)["task"], best)
    resampled = cfg.log.replicates > 0 and hasattr(loop.metrics, "resample")
    reports, predicted, keep = {}, {}, bool(cfg.log.predictions or loop.removed)
    found: dict[str, NDArray] = {}
    for split, loader in loop.evaluations.items():  # the last one is test
        how = loop.metrics, keep, resampled and split == "test"
        report, found = evaluate(loop.fabric, loop.task, loader, *how)
        if split == "test" and loop.removed:
            from engine.training.protocol import errors

            report |= errors(found["pred"], found["target"], loop.removed)
        reports |= {f"{split}/{key}": value for key, value in report.items()}
        predicted |= {f"{split}_{name}": array for name, array in found.items()}
    labels = np.concatenate([loop.labels, loop.images.labels])  # a protocol removes some of train
    if reason := loop.task.implausible(reports, labels):
        raise FloatingPointError(f"{reason}. {LOWER}")
    if not loop.fabric.is_global_zero:
        return
    if cfg.log.predictions:
        kept = {k: v for k, v in predicted.items() if k.endswith(("_pred", "_target"))}
        with atomic_write(folder / runs.PREDICTIONS) as file:
            np.savez(file, **kept)  # pyright: ignore[reportArgumentType]
    if resampled:
        # Every metric on bootstrap replicates of the test samples, the same for every run on them.
        samples = torch.from_numpy(predicted["test_samples"])
        weights = bootstrap_weights(len(samples), cfg.log.replicates)
        values = loop.metrics.cpu().resample(samples, weights)
        with atomic_write(folder / runs.REPLICATES) as file:
            np.savez_compressed(file, **{key: value.numpy() for key, value in values.items()})
    if cfg.log.figures and log.writer is not None:
        figures = targets.find(cfg.log.plot, cfg.trust, "log.plot")(loop, found)
        for name, figure in figures.items():
            log.writer.add_figure(name, figure, loop.steps_done)
        if hasattr(loop.task, "show"):  # meshes
            loop.task.show(log.writer, found, loop.steps_done)
    test = {key: value for key, value in reports.items() if key.startswith("test/")}
    about = records.meta()
    log.end(cfg, about, test, loop.steps_done)
    content = {
        "metrics": reports,
        "weights": identity.file_digest(best),
        "epoch": loop.best["epoch"],
        "seconds": loop.seconds,
        **{f"final_{key}": value for key, value in loop.task.scales().items()},
        "row": cfg.row,
        "seed": cfg.seed,
        "meta": about,
    }
    records.write(folder / "metrics.json", content)  # the run is finished
    shown = "  ".join(f"{key} {text}" for key, text in runs.brief(reports, cfg.log.show))
    log.info(f"finished {cfg.name}: {shown}")


def finished_run(
    folder: Path,
    which: str = "best",
    trust: Sequence[str] | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
) -> tuple[DictConfig, Any, Any]:
    """Return the config of a run, its task with the weights of a checkpoint, and its metrics.

    trust: packages that its config may call in addition; see engine/cli/targets.py.
    max_pixels, max_bytes: limits on the files that are read, instead of those in the config.
    """
    cfg: Any = runs.read_config(folder, trust)
    limits = {"max_pixels": max_pixels, "max_bytes": max_bytes}
    cfg.dataset.update({key: value for key, value in limits.items() if key in cfg.dataset})
    changed = identity.compare(folder, cfg)
    if changed:
        print_message(f"{folder}: {changed} changed since this run; its metrics can differ.")
    cfg.features = {"mode": "none"}  # evaluate on images, not on cached features
    train = build.dataset(cfg, "train")
    backbone = None if cfg.backbone is None else Path(cfg.backbone.checkpoint)
    known = (cfg.backbone or {}).get("digest")
    if backbone is not None and known not in (None, identity.file_digest(backbone)):
        raise ValueError(
            f"{backbone}: stage 1 is gone or was retrained after {folder}. Run the same stage 2 "
            "again to train it on the new stage 1."
        )
    task = build.task(cfg, train.labels, backbone, getattr(train, "label_counts", None))
    weights = folder / "checkpoints" / f"{which}.pt"
    run = f"{cfg.name}/{cfg.preset}/seed{cfg.seed}"
    build.read_state(task, checkpoint.read(weights, run)["task"], weights)
    return cfg, task.eval(), build.metrics(cfg, train)


def released_model(path: Path, layout: str, cfg: DictConfig) -> tuple[Any, Any]:
    """Return a released checkpoint as a task, and the metrics of the configured dataset, without
    reading the training images."""
    from losses import WeightedLoss

    labels = build.shot_labels(cfg)
    trust, model = cfg.get("trust"), load(path, layout)
    task: nn.Module = targets.make(cfg.task, trust, model=model, loss=WeightedLoss(error="l1"))
    return task.eval(), targets.make(cfg.metrics, trust, train_labels=labels)


def report(
    fabric: Fabric, cfg: DictConfig, task: Any, metrics: Any, split: str, batch_size: int
) -> dict[str, float]:
    """Return the metrics of one split of the config's dataset."""
    loader = evaluation_loader(
        build.dataset(cfg, split), batch_size, 0, False, fabric.global_rank, fabric.world_size
    )
    return evaluate(fabric, fabric.to_device(task), loader, metrics)[0]


def main(cfg: DictConfig) -> None:
    """Print and write the metrics of a finished run or a released checkpoint."""
    if (cfg.run is None) == (cfg.released is None):
        raise ValueError("Give either run=<folder> or released=<file>; see configs/evaluate.yaml.")
    if cfg.run is not None:
        limits = cfg.max_pixels, cfg.max_bytes
        folder, name = Path(cfg.run), f"evaluation_{cfg.checkpoint}_{cfg.split}.json"
        data, task, metrics = finished_run(folder, cfg.checkpoint, cfg.trust, *limits)
    else:
        path = Path(cfg.released)
        folder, name = Path(cfg.paths.outputs) / "released", f"{path.stem}_{cfg.split}.json"
        data, (task, metrics) = cfg, released_model(path, cfg.layout, cfg)
    writable(folder)
    fabric = Fabric(accelerator=cfg.accelerator, devices=1)
    found = report(fabric, data, task, metrics, cfg.split, cfg.batch_size)
    for key, value in found.items():
        print(f"{cfg.split}/{key:<14} {value:.4f}")
    records.write(folder / name, found)
