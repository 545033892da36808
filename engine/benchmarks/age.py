"""Figures of a table with one-dimensional labels, from its finished runs.

    labels        histograms of training and test labels
    gain          gain in mean absolute error over the baseline at each label
    predictions   predicted against true labels

Labels are ages unless `benchmark.label` in the config says otherwise.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from numpy.typing import NDArray
from omegaconf import DictConfig

from datasets.io.arrays import read_npz
from engine.runs.folder import AGAIN, read_config
from engine.tables.plots import TRAIN, axis_behind, colour, save, styled
from engine.training import build

PANEL_COLUMNS = 4


class Label(NamedTuple):
    """Name and unit of the label, name of the samples, and width of a histogram bin."""

    title: str = "age"
    unit: str = "years"
    samples: str = "images"
    step: float = 1.0

    def bins(self, values: NDArray) -> NDArray:
        """Centre of the bin of each value."""
        return np.round(values / self.step) * self.step

    def histogram(self, values: NDArray) -> tuple[NDArray, NDArray]:
        """Return the number of values in each bin, empty bins included, and the edges of the bins,
        for `Axes.stairs`."""
        bins = np.round(np.ravel(values) / self.step).astype(int)
        counts = np.bincount(bins - bins.min())
        return counts, (bins.min() - 0.5 + np.arange(len(counts) + 1)) * self.step


Runs = Mapping[str, Sequence[Path]]  # {row: the folders of its seeds}


@styled
def plot(cfg: DictConfig, runs: Runs, folder: Path) -> list[Path]:
    """Plot all figures of a finished table into `folder`."""
    label = Label(**(cfg.benchmark.get("label") or {}))
    (baseline,) = cfg.benchmark.highlight.baseline
    run = read_config(next(iter(runs.values()))[0], cfg.get("trust"))
    train = np.asarray(build.dataset(run, "train").labels, dtype=float).ravel()
    test = predictions(next(iter(runs.values()))[0])[1]
    figures = {"labels": Figure((6, 2.4)), "predictions": predicted_and_true(runs, label)}
    label_histograms(train, test, label, figures["labels"].subplots())
    if len(runs) > 1 and baseline in runs:
        figures["gain"] = gains(runs, baseline, train, test, label)
    return save(figures, folder, cfg.name)


def label_histograms(train: NDArray, test: NDArray, label: Label, ax: Axes) -> Axes:
    """Number of training and test samples in each bin."""
    ax.stairs(*label.histogram(train), fill=True, color=TRAIN, label="training set")
    ax.stairs(*label.histogram(test), color=colour("Test"), linewidth=1.5, label="test set")
    ax.set(yscale="log", xlabel=label.title, ylabel=label.samples)
    for form in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        form(LogFormatter())  # 2, not 2 x 10^0, where all counts are small
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return ax


def gains(runs: Runs, baseline: str, train: NDArray, test: NDArray, label: Label) -> Figure:
    """Bars of the gain (up) or loss (down) at each label, over the training histogram; one panel
    for each row but the baseline."""
    others = [row for row in runs if row != baseline]
    figure = Figure((6, 1.15 * len(others) + 0.5))
    axes = figure.subplots(len(others), sharex=True, sharey=True, squeeze=False)[:, 0]
    errors = {row: error_per_label(runs[row], label) for row in runs}
    counts, edges = label.histogram(train)
    for row, ax in zip(others, axes, strict=True):
        behind, gain = axis_behind(ax), errors[baseline] - errors[row]
        behind.stairs(counts, edges, fill=True, color=TRAIN, alpha=0.5, linewidth=0)
        behind.set(yticks=[], ylim=(0, counts.max() * 1.05))
        behind.spines["left"].set_visible(False)
        ax.bar(gain.index, gain, width=0.9 * label.step, color=colour(row))
        ax.axhline(0, color="black", linewidth=0.6)
        ax.set_title(row, loc="left", weight="bold", fontsize="medium", pad=2)
    ends = label.bins(test.min()) - label.step, label.bins(test.max()) + label.step
    axes[-1].set(xlabel=label.title, xlim=ends)
    unit = f" ({label.unit})" if label.unit else ""
    figure.supylabel(f"gain in bMAE over {baseline}{unit}", fontsize=9)
    figure.tight_layout(h_pad=0.4)
    return figure


def predicted_and_true(runs: Runs, label: Label) -> Figure:
    """Scatter plot of the test samples and the mean prediction at each label; one panel for each
    row, from its first seed."""
    lines = -(-len(runs) // PANEL_COLUMNS)
    figure = Figure((7.2, 2.0 * lines))
    axes = figure.subplots(lines, PANEL_COLUMNS, sharex=True, sharey=True)
    for index, ax in enumerate(axes.flat[len(runs) :], len(runs)):
        ax.set_axis_off()
        if index >= PANEL_COLUMNS:  # the panel above is the last one of its column
            axes.flat[index - PANEL_COLUMNS].xaxis.set_tick_params(labelbottom=True)
    for row, ax in zip(runs, axes.flat, strict=False):
        pred, target = predictions(runs[row][0])
        top = float(max(target.max(), 1))
        ax.plot([0, top], [0, top], color="black", linewidth=0.6)
        ax.scatter(target, pred, s=3, color="#888888", alpha=0.35, linewidth=0, rasterized=True)
        means: Any = pd.Series(pred).groupby(label.bins(target)).mean()
        ax.plot(means.index, means, color=colour(row), linewidth=1.4)
        ax.set(title=row, xlim=(0, top), ylim=(0, top * 1.05))
    figure.supxlabel(f"true {label.title}", fontsize=9)
    figure.supylabel(f"predicted {label.title}", fontsize=9)
    figure.tight_layout()
    return figure


def predictions(folder: Path) -> tuple[NDArray, NDArray]:
    """Predicted (n,) and true labels (n,) of a run's test set."""
    file = read_npz(folder / "predictions.npz", advice=AGAIN)
    return file["test_pred"][:, 0].astype(float), file["test_target"][:, 0].astype(float)


def error_per_label(folders: Sequence[Path], label: Label) -> pd.Series:
    """Mean absolute error at each label, averaged over the seeds."""
    seeds = []
    for folder in folders:
        pred, target = predictions(folder)
        seeds.append(pd.Series(abs(pred - target)).groupby(label.bins(target)).mean())
    return pd.concat(seeds, axis=1).mean(axis=1)
