"""The figures of a depth table, from its finished runs, and those of one run for TensorBoard.

    panel   input, ground truth, Vanilla, Balanced MSE and their error maps, on one scale in metres
    gain    how much lower each row's RMSE is than Vanilla's, per 0.1 m bin, over the histogram of
            the training pixels

Maps are predicted again, frame by frame, from the cached features where a run has them.

P: frames of a figure; B: depth bins.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from lightning_fabric import Fabric
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig

from datasets.depth import BINS, BINS_PER_METRE, bin_centers, to_image
from engine.evaluation.evaluate import finished_run
from engine.features import cache as features
from engine.runs.folder import finished, read_config
from engine.tables.columns import highlighted
from engine.tables.plots import STYLE, TRAIN, colour, save
from engine.training import build
from engine.training.batches import evaluation_loader

DEEPEST, LARGEST_ERROR = 10.0, 4.0  # metres, of the colour scales
QUANTILES = (0.15, 0.5, 0.85, 0.97)  # of the test frames' mean depth: the frames of a panel


class Maps:
    """A finished run that predicts test maps again."""

    def __init__(self, folder: Path, trust: Sequence[str] | None = None):
        chosen = (finished(folder) or {}).get("chosen_run")
        folder = Path(chosen) if chosen else folder
        self.fabric = Fabric(accelerator="cpu", devices=1)
        self.cfg, self.task, self.metrics = finished_run(folder, trust=trust)
        self.images = self.source = build.dataset(self.cfg, "test")
        saved: Any = read_config(folder, trust)
        if saved.features.mode == "cached":
            saved.log.progress = False
            self.task.cached = True
            backbone = None if saved.backbone is None else Path(saved.backbone.checkpoint)
            model, splits = self.task.model, {"test": self.images}
            found = features.tables(self.fabric, saved, model, splits, backbone)
            self.source = found["test"]

    @torch.no_grad()
    def batches(self) -> Iterator[tuple[dict, torch.Tensor]]:
        """Every test batch with its predictions (n, 1, H, W), one after the other."""
        size = self.cfg.trainer.eval_batch_size
        for batch in evaluation_loader(self.source, size, 0, False, 0, 1):
            yield batch, self.task.predict(batch)

    def rmse_per_bin(self) -> tuple[NDArray, NDArray]:
        """(B,) RMSE over the measured pixels, NaN where a bin has none, and (P,) mean depths."""
        self.metrics.reset()
        depths = []
        for batch, pred in self.batches():
            self.metrics.update(pred, batch["target"], batch["mask"])
            depths += batch["target"].flatten(1).mean(1).tolist()
        count, squares = self.metrics.totals[0].numpy(), self.metrics.totals[1].numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(squares / count), np.array(depths)

    @torch.no_grad()
    def some(self, frames: Sequence[int]) -> tuple[list[NDArray], NDArray, NDArray]:
        """Images (H, W, 3), predictions (P, H, W) and targets (P, H, W) of a few frames."""
        keys = [(0, frame) for frame in frames]
        if self.task.cached:
            batch = self.source.__getitems__(keys)
        else:
            batch = torch.utils.data.default_collate([self.images[frame] for frame in frames])
        pred = self.task.predict(batch)
        images = [to_image(self.images[frame]["input"]) for frame in frames]
        return images, pred[:, 0].numpy(), batch["target"][:, 0].numpy()


def draw(cfg: DictConfig, runs: Mapping[str, Sequence[str]], folder: Path) -> list[Path]:
    """Panel and gain of a table, from the first seed of each row; the paths of the files."""
    (baseline,) = cfg.benchmark.highlight.baseline
    if baseline not in runs:
        return []
    wanted = highlighted(cfg.benchmark, "reweighted", "paper", "ours")
    rows = [row for row in wanted if row in runs]
    trust = cfg.get("trust")
    made = {row: Maps(Path(runs[row][0]), trust) for row in (baseline, *rows)}
    vanilla, depths = made[baseline].rmse_per_bin()
    figures = {}
    if rows:
        gains = {row: vanilla - made[row].rmse_per_bin()[0] for row in rows}
        counts = build.dataset(made[baseline].cfg, "train").label_counts
        figures["gain"] = _gain_figure(gains, counts)
    shown = next((row for row in cfg.benchmark.highlight.shown if row in made), None)
    if shown is not None:
        frames = np.unique(np.argsort(depths)[[int(q * (len(depths) - 1)) for q in QUANTILES]])
        both = {row: made[row].some(frames.tolist()) for row in (baseline, shown)}
        images, _, target = both[baseline]
        figures["panel"] = panel(images, target, {row: pred for row, (_, pred, _) in both.items()})
    return save(figures, folder, cfg.name)


def samples(loop: Any, test: Mapping[str, NDArray]) -> dict[str, Figure]:
    """Of a run at its end: the first test frames, their depth, the prediction and its error."""
    batch = loop.fabric.to_device(next(iter(loop.evaluations["test"])))
    with torch.no_grad():
        loop.task.eval()
        pred = loop.task.predict(batch)[:4, 0].cpu().numpy()
    target = batch["target"][:4, 0].cpu().numpy()
    index = batch["meta"]["index"][:4].tolist()
    images = [to_image(loop.images[number]["input"]) for number in index]
    return {"samples": panel(images, target, {loop.cfg.row: pred})}


def panel(images: Sequence[NDArray], target: NDArray, pred: Mapping[str, NDArray]) -> Figure:
    """A line for each frame: image, ground truth, every row's prediction, every row's error."""
    columns = 2 + 2 * len(pred)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.6 * columns, 1.05 * len(images) + 0.4), layout="constrained")
        axes = np.atleast_2d(figure.subplots(len(images), columns, squeeze=False))
        depth = wrong = None
        for line, image in enumerate(images):
            known = np.where(target[line] > 0, target[line], np.nan)
            axes[line, 0].imshow(image)
            depth = depth_map(known, axes[line, 1])
            for i, maps in enumerate(pred.values()):
                depth_map(maps[line], axes[line, 2 + i])
                wrong = error_map(maps[line] - known, axes[line, 2 + len(pred) + i])
        assert depth is not None
        assert wrong is not None
        titles = ["input", "ground truth", *pred, *(f"|error| of {row}" for row in pred)]
        for i, title in enumerate(titles):
            axes[0, i].set_title(title)
        for ax in axes.flat:
            ax.set_axis_off()
        maps_end = 2 + len(pred)
        figure.colorbar(depth, ax=axes[:, :maps_end], label="depth (m)", shrink=0.8, pad=0.01)
        figure.colorbar(wrong, ax=axes[:, maps_end:], label="error (m)", shrink=0.8, pad=0.01)
    return figure


def depth_map(depth: NDArray, ax: Axes) -> Any:
    return ax.imshow(depth, cmap="viridis", vmin=0, vmax=DEEPEST)


def error_map(error: NDArray, ax: Axes) -> Any:
    return ax.imshow(np.abs(error), cmap="magma", vmin=0, vmax=LARGEST_ERROR)


def gain(gains: Mapping[str, NDArray], counts: NDArray, ax: Axes) -> Axes:
    """{row: (B,)} RMSE gains in metres over the depth, the training histogram behind."""
    behind = ax.twinx()
    behind.bar(bin_centers(), counts / counts.sum(), 1 / BINS_PER_METRE, color=TRAIN)
    behind.set(ylabel="share of training pixels")
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    ax.axhline(0, color="0.4", linewidth=0.8)
    for row, values in gains.items():
        ax.plot(bin_centers(), values, color=colour(row), label=row)
    ax.set(
        xlabel="true depth (m)",
        ylabel="RMSE gain over Vanilla (m)",
        xlim=(0.5, BINS / BINS_PER_METRE),
    )
    ax.legend(loc="lower right")  # where pixels are few
    return ax


def _gain_figure(gains: Mapping[str, NDArray], counts: NDArray) -> Figure:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.5, 3), layout="constrained")
        gain(gains, counts, figure.add_subplot())
    return figure
