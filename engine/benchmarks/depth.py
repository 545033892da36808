"""Figures of a depth table, from its finished runs, and of one run for TensorBoard.

    panel   input, ground truth, predictions of the baseline and of one other row, error maps
    gain    gain in RMSE over the baseline per 0.1 m bin, over the training histogram

Maps are predicted anew, frame by frame, from the cached features where a run has them.

Shapes: P frames of a figure, B depth bins.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor

from datasets.depth import BINS, BINS_PER_METRE, bin_centers, to_image
from engine.evaluation.evaluate import finished_run
from engine.features import cache as features
from engine.runs.folder import finished, read_config
from engine.tables.columns import highlighted
from engine.tables.plots import TRAIN, axis_behind, colour, save, styled
from engine.training import build
from engine.training.batches import Keyed, evaluation_loader, loader

DEPTH = {"cmap": "viridis", "vmin": 0, "vmax": 10}  # metres
ERROR = {"cmap": "magma", "vmin": 0, "vmax": 4}
QUANTILES = (0.15, 0.5, 0.85, 0.97)  # frames of a panel, by mean depth


class Maps:
    """A finished run that predicts its test maps."""

    def __init__(self, folder: Path, trust: Sequence[str] | None = None):
        chosen = (finished(folder) or {}).get("chosen_run")
        folder = Path(chosen) if chosen else folder
        self.cfg, self.task, self.metrics = finished_run(folder, trust=trust)
        self.images = build.dataset(self.cfg, "test")
        self.source, saved = Keyed(self.images, 0), read_config(folder, trust)
        if saved.features.mode == "cached":
            saved.log.progress = False
            self.task.cached = True
            backbone = None if saved.backbone is None else Path(saved.backbone.checkpoint)
            how = Fabric(accelerator="cpu", devices=1), saved, self.task.model
            self.source = features.tables(*how, {"test": self.images}, backbone)["test"]

    @torch.no_grad()
    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield predictions, targets and masks of all test frames, a batch at a time."""
        size = self.cfg.trainer.eval_batch_size
        for batch in evaluation_loader(self.source, size, 0, False, 0, 1):
            yield self.task.predict(batch), batch["target"], batch["mask"]

    def rmse_per_bin(self) -> tuple[NDArray, NDArray]:
        """(B,) RMSE over the measured pixels, NaN for an empty bin, and (P,) mean depths."""
        self.metrics.reset()
        depths = []
        for pred, target, mask in self.batches():
            self.metrics.update(pred, target, mask)
            depths += target.flatten(1).mean(1).tolist()
        count, squares = self.metrics.totals[:2].numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(squares / count), np.array(depths)

    @torch.no_grad()
    def frames(self, indices: Sequence[int]) -> tuple[list[NDArray], NDArray, NDArray]:
        """Images (H, W, 3), predictions (P, H, W) and targets (P, H, W) of some frames."""
        batch = next(iter(loader(self.source, [[(0, index) for index in indices]], 0)))
        pred = self.task.predict(batch)
        images = [to_image(self.images[index]["input"]) for index in indices]
        return images, pred[:, 0].numpy(), batch["target"][:, 0].numpy()


@styled
def plot(cfg: DictConfig, runs: Mapping[str, Sequence[str]], folder: Path) -> list[Path]:
    """Plot panel and gain of a table from the first seed of each row; return the paths."""
    (baseline,) = cfg.benchmark.highlight.baseline
    if baseline not in runs:
        return []
    wanted = highlighted(cfg.benchmark, "reweighted", "paper", "ours")
    rows = [row for row in wanted if row in runs]
    maps = {row: Maps(Path(runs[row][0]), cfg.get("trust")) for row in (baseline, *rows)}
    rmse, depths = maps[baseline].rmse_per_bin()
    figures = {}
    if rows:
        gains = {row: rmse - maps[row].rmse_per_bin()[0] for row in rows}
        counts = build.dataset(maps[baseline].cfg, "train").label_counts
        figures["gain"] = Figure(figsize=(5.5, 3), layout="constrained")
        gain(gains, baseline, counts, figures["gain"].add_subplot())
    shown = next((row for row in cfg.benchmark.highlight.shown if row in maps), None)
    if shown is not None:
        frames = np.unique(np.argsort(depths)[[int(q * (len(depths) - 1)) for q in QUANTILES]])
        both = {row: maps[row].frames(frames.tolist()) for row in (baseline, shown)}
        images, _, target = both[baseline]
        figures["panel"] = panel(images, target, {row: pred for row, (_, pred, _) in both.items()})
    return save(figures, folder, cfg.name)


def samples(loop: Any, test: Mapping[str, NDArray]) -> dict[str, Figure]:
    """Panel of the first test frames of a run that ends, for TensorBoard."""
    batch = loop.fabric.to_device(next(iter(loop.evaluations["test"])))
    with torch.no_grad():
        loop.task.eval()
        pred = loop.task.predict(batch)[:4, 0].cpu().numpy()
    target = batch["target"][:4, 0].cpu().numpy()
    index = batch["meta"]["index"][:4].tolist()
    images = [to_image(loop.images[number]["input"]) for number in index]
    return {"samples": panel(images, target, {loop.cfg.row: pred})}


@styled
def panel(images: Sequence[NDArray], target: NDArray, preds: Mapping[str, NDArray]) -> Figure:
    """One line per frame: image, ground truth, the prediction of each row, the error of each."""
    titles = ["input", "ground truth", *preds, *(f"|error| of {row}" for row in preds)]
    middle = 2 + len(preds)  # first column of errors
    size = 1.6 * len(titles), 1.05 * len(images) + 0.4
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(images), len(titles), squeeze=False)
    for line, image in enumerate(images):
        known = np.where(target[line] > 0, target[line], np.nan)
        axes[line, 0].imshow(image)
        axes[line, 1].imshow(known, **DEPTH)
        for i, maps in enumerate(preds.values()):
            axes[line, 2 + i].imshow(maps[line], **DEPTH)
            axes[line, middle + i].imshow(np.abs(maps[line] - known), **ERROR)
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title)
    for ax in axes.flat:
        ax.set_axis_off()
    depth, error = axes[0, 1].images[0], axes[0, middle].images[0]
    figure.colorbar(depth, ax=axes[:, :middle], label="depth (m)", shrink=0.8, pad=0.01)
    figure.colorbar(error, ax=axes[:, middle:], label="error (m)", shrink=0.8, pad=0.01)
    return figure


def gain(gains: Mapping[str, NDArray], baseline: str, counts: NDArray, ax: Axes) -> Axes:
    """{row: (B,)} RMSE gains in metres by depth, over the training histogram."""
    behind = axis_behind(ax)
    behind.bar(bin_centers(), counts / counts.sum(), 1 / BINS_PER_METRE, color=TRAIN)
    behind.set(ylabel="share of training pixels")
    ax.axhline(0, color="0.4", linewidth=0.8)
    widths = np.linspace(3.5, 1.2, len(gains))  # one curve can lie on another
    for (row, values), width in zip(gains.items(), widths, strict=True):
        ax.plot(bin_centers(), values, color=colour(row), label=row, linewidth=width)
    ax.set(xlabel="true depth (m)", ylabel=f"gain in RMSE over {baseline} (m)")
    ax.set_xlim(0.5, BINS / BINS_PER_METRE)
    ax.legend(loc="lower right")  # where pixels are few
    return ax
