"""One pass over a split: every sample once over all ranks, metrics summed, predictions kept if asked."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torchmetrics import Metric

from engine.checkpoint import whole as whole_file


@torch.no_grad()
def evaluate(
    fabric: Fabric, objective: Any, loader: DataLoader, metrics: Metric, keep: bool = False
) -> tuple[dict[str, float], dict[str, NDArray]]:
    """The report of `metrics`, and if `keep` the arrays index (N,), pred (N, D), target (N, D) in order.

    The objective is used as it stands, outside any distributed wrapper; it is left in the mode it had.
    """
    was_training = objective.training
    objective.eval()
    metrics = metrics.to(fabric.device)
    metrics.reset()
    rows: list[tuple[NDArray, NDArray, NDArray]] = []
    for raw in loader:
        batch = fabric.to_device(raw)
        with fabric.autocast():
            pred = objective.predict(batch)
        metrics.update(pred, batch["target"])
        if keep:
            arrays = batch["meta"]["index"], pred.float(), batch["target"].float()
            rows.append(tuple(array.cpu().numpy() for array in arrays))
    report = {key: float(value) for key, value in metrics.compute().items()}
    objective.train(was_training)
    return report, _in_order(fabric, rows) if keep else {}


def save_predictions(path: Path, splits: dict[str, dict[str, NDArray]]) -> None:
    """predictions.npz: `<split>_pred`, `<split>_target` for each split, rows in the dataset's order."""
    arrays = {
        f"{split}_{name}": array
        for split, kept in splits.items()
        for name, array in kept.items()
        if name != "index"
    }
    with whole_file(path) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def _in_order(fabric: Fabric, rows: list) -> dict[str, NDArray]:
    parts = [rows]
    if fabric.world_size > 1:
        parts = [[] for _ in range(fabric.world_size)]
        torch.distributed.all_gather_object(parts, rows)
    columns = zip(*(row for part in parts for row in part), strict=True)
    index, pred, target = (np.concatenate(column) for column in columns)
    order = np.argsort(index)
    return {"index": index[order], "pred": pred[order], "target": target[order]}
