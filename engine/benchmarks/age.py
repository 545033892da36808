"""The figures of a table whose label is one number, an age if `benchmark.label` does not say
otherwise, drawn from its runs: labels, gains, predictions.

A plot is a function (data, ax) -> ax; one colour per method, as in the synthetic figures.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig

from datasets.ages import SPLITS, Row
from datasets.io.arrays import read_npz
from engine.runs.folder import AGAIN, read_config
from engine.tables.plots import STYLE, TRAIN, colour, save
from engine.training import build
from metrics.groups import SHOTS, age_shots


class Label(NamedTuple):
    """What is predicted: its name, its unit, what has one, and how wide a bar is."""

    title: str = "age"
    unit: str = "years"
    samples: str = "images"
    step: float = 1.0

    def bins(self, values: NDArray) -> NDArray:
        """The middle of the bar that each value is in."""
        return np.round(values / self.step) * self.step


Runs = Mapping[str, Sequence[Path]]  # {row: the folders of its seeds}


def draw(cfg: DictConfig, runs: Runs, folder: Path) -> list[Path]:
    """Labels, gain over Vanilla per label, and predictions against truth."""
    label = Label(**(cfg.benchmark.get("label") or {}))
    (baseline,) = cfg.benchmark.highlight.baseline
    train, test = train_labels(runs, cfg.get("trust")), predictions(runs[baseline][0])[1]
    with mpl.rc_context(STYLE):
        labels = Figure((6, 2.4))
        label_histograms(train, test, label, labels.subplots())

        others = [row for row in runs if row != baseline]
        gains = Figure((6, 1.15 * len(others) + 0.5))
        axes = gains.subplots(len(others), sharex=True, sharey=True, squeeze=False)[:, 0]
        errors = {row: error_per_label(runs[row], label) for row in runs}
        for row, ax in zip(others, axes, strict=True):
            gain_per_label(row, errors[baseline] - errors[row], train, label, ax)
        ends = label.bins(test.min()) - label.step, label.bins(test.max()) + label.step
        axes[-1].set(xlabel=label.title, xlim=ends)  # no further than can be tested
        unit = f" ({label.unit})" if label.unit else ""
        gains.supylabel(f"gain in bMAE over {baseline}{unit}", fontsize=9)
        gains.tight_layout(h_pad=0.4)

        columns = 4
        scatter = Figure((7.2, 2.0 * -(-len(runs) // columns)))
        panels = scatter.subplots(-(-len(runs) // columns), columns, sharex=True, sharey=True)
        for ax in panels.flat[len(runs) :]:
            ax.set_axis_off()
        for row, ax in zip(runs, panels.flat, strict=False):
            predicted_and_true(row, *predictions(runs[row][0]), label, ax)
        scatter.supxlabel(f"true {label.title}", fontsize=9)
        scatter.supylabel(f"predicted {label.title}", fontsize=9)
        scatter.tight_layout()
        figures = {"labels": labels, "gain": gains, "predictions": scatter}
        return save(figures, folder, cfg.name)


def label_histograms(train: NDArray, test: NDArray, label: Label, ax: Axes) -> Axes:
    """How many samples of each label there are to learn from, and to be tested on."""
    sets = (train, TRAIN, "training set"), (test, colour("Test"), "test set")
    for values, shade, name in sets:
        bins, counts = np.unique(label.bins(values), return_counts=True)
        if name == "test set":
            ax.step(bins, counts, where="mid", color=shade, label=name)
        else:
            ax.bar(bins, counts, width=label.step, color=shade, label=name)
    ax.set(yscale="log", xlabel=label.title, ylabel=label.samples)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return ax


def gain_per_label(row: str, gain: pd.Series, train: NDArray, label: Label, ax: Axes) -> Axes:
    """Bars of what was gained (up) or lost (down) at each label, over the training histogram."""
    behind = ax.twinx()
    bins, counts = np.unique(label.bins(train), return_counts=True)
    behind.fill_between(bins, counts, step="mid", color=TRAIN, alpha=0.5, linewidth=0)
    behind.set(yticks=[], ylim=(0, counts.max() * 1.05))
    behind.spines["left"].set_visible(False)
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    ax.bar(gain.index, gain, width=0.9 * label.step, color=colour(row))
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set_title(row, loc="left", weight="bold", fontsize="medium", pad=2)
    return ax


def predicted_and_true(row: str, pred: NDArray, target: NDArray, label: Label, ax: Axes) -> Axes:
    """Every test sample, and the mean prediction at each label."""
    top = float(max(target.max(), 1))
    ax.plot([0, top], [0, top], color="black", linewidth=0.6)
    ax.scatter(target, pred, s=3, color="#888888", alpha=0.35, linewidth=0, rasterized=True)
    bins = label.bins(target)
    seen = np.unique(bins)
    means = [pred[bins == one].mean() for one in seen]
    ax.plot(seen, means, color=colour(row), linewidth=1.4)
    ax.set(title=row, xlim=(0, top), ylim=(0, top * 1.05))
    return ax


def describe(rows: Sequence[Row]) -> str:
    """Images of each split, and ages of each shot, of the rows of a CSV."""
    counts = Counter(row.split for row in rows)
    shots = age_shots([int(row.age) for row in rows if row.split == "train"])
    ages = Counter(int(shots[age]) for age in {int(row.age) for row in rows})
    images = ", ".join(f"{name} {counts[name]:,}" for name in SPLITS)
    return f"{images} images\n{', '.join(f'{n} {ages[i]}' for i, n in enumerate(SHOTS))} shot ages"


def train_labels(runs: Runs, trust: Sequence[str] | None = None) -> NDArray:
    """(n,) the labels that the runs have learnt from."""
    cfg = read_config(next(iter(runs.values()))[0], trust)
    return np.asarray(build.dataset(cfg, "train").labels, dtype=float).ravel()


def predictions(folder: Path) -> tuple[NDArray, NDArray]:
    """(n,), (n,): predicted and true labels of a run's test set."""
    file = read_npz(folder / "predictions.npz", advice=AGAIN)
    return file["test_pred"][:, 0].astype(float), file["test_target"][:, 0].astype(float)


def error_per_label(folders: Sequence[Path], label: Label) -> pd.Series:
    """The mean absolute error at each label, over the seeds."""
    parts = []
    for folder in folders:
        pred, target = predictions(folder)
        parts.append(pd.Series(abs(pred - target)).groupby(label.bins(target)).mean())
    return pd.concat(parts, axis=1).mean(axis=1)
