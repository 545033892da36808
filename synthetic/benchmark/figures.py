"""The paper's synthetic figures, from finished jobs.

S: seeds; n: points; F: inputs; D: label dimensions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from synthetic.benchmark.jobs import Job
from synthetic.benchmark.problems import NONLINEAR, SKEWS, TABLE, Problem, Split, make_splits

NAMES = {
    "Vanilla": "Least squares",
    "Reweight": "Re-weighting",
    "GAI (true noise)": "Balanced MSE (GAI)",
}
LOW_TO_HIGH = SKEWS[::-1]


class Figures:
    """One method for each figure; `colour` maps the name of a row to its colour."""

    def __init__(self, jobs: Sequence[Job], colour: Callable[[str], str]):
        self.colour = colour
        self.jobs: dict[Problem, Job] = {}
        self.fits: dict[Problem, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
        for job in jobs:
            if job.method in NAMES:
                result = job.result()
                for i, problem in enumerate(job.problems):
                    self.jobs[problem] = job
                    fit = result["weight"][i], result["bias"][i]  # (S, D, F), (S, D)
                    self.fits.setdefault(problem, {})[job.method] = fit

    def predict(self, problem: Problem, method: str, x: torch.Tensor, seed: int = 0) -> np.ndarray:
        """(n, F) -> (n, D)."""
        weight, bias = self.fits[problem][method]
        return x.numpy() @ weight[seed].T + bias[seed]

    def splits(self, problem: Problem, count: int | None = None) -> dict[str, Split]:
        """Data of the first seed; with `count`, that many pairs, for smooth densities."""
        job = self.jobs[problem]
        sizes = count or job.training.samples, count or job.training.held_out
        return make_splits(problem, job.seeds[0], *sizes)

    def plot_lines(self, problem: Problem, train: Split, ax: Axes) -> Axes:
        """Plot the training points, the oracle and every method's curve over the label range."""
        low, high = problem.range
        y = torch.linspace(low, high, 200)[:, None]
        x = problem.inverse(y, torch.eye(2))
        style = {"s": 3, "c": self.colour("Train"), "alpha": 0.4, "lw": 0}
        ax.scatter(train.x[:, 0], train.y[:, 0], **style, label="Training data")
        ax.plot(x[:, 0], y[:, 0], c=self.colour("Oracle"), lw=2.5, label="Oracle")
        for method, label in NAMES.items():
            pred = self.predict(problem, method, problem.features(x))[:, 0]
            ax.plot(x[:, 0], pred, c=self.colour(method), lw=1.6, label=label)
        margin = 0.05 * float(x.max() - x.min())
        ax.set(xlabel="x", ylabel="y", ylim=(low - 1, high + 1))
        ax.set_xlim(float(x.min()) - margin, float(x.max()) + margin)
        return ax

    def plot_marginals(self, problem: Problem, train: Split, test: Split, ax: Axes) -> Axes:
        """Plot histograms of training labels, test labels and each method's predictions."""
        low, high = problem.range
        filled: dict[str, Any] = {"bins": np.linspace(low, high, 41), "density": True}
        step: dict[str, Any] = filled | {"histtype": "step"}
        style = {"color": self.colour("Train"), "alpha": 0.45, "label": "Training labels"}
        ax.hist(train.y[:, 0], **filled, **style)
        ax.hist(test.y[:, 0], **step, color=self.colour("Test"), lw=1.5, label="Test labels")
        for method, label in NAMES.items():
            pred = self.predict(problem, method, test.x)[:, 0]
            ax.hist(pred, **step, color=self.colour(method), lw=1.4, label=label)
        ax.set(xlabel="label", ylabel="density", xlim=(low, high), ylim=(0, 1.0))
        return ax

    def skews(self) -> Figure:
        """Fig. 2: lines and marginals, three skews from low to high, for both distributions."""
        figure = Figure(figsize=(12, 7.5), layout="constrained")
        axes = figure.subplots(3, 4)
        for row, skew in enumerate(LOW_TO_HIGH):
            for pair, family in enumerate(("normal", "exponential")):
                problem = Problem(family, skew)
                data = self.splits(problem)
                left, right = axes[row, 2 * pair], axes[row, 2 * pair + 1]
                self.plot_lines(problem, data["train"], left)
                self.plot_marginals(problem, data["train"], data["test"], right)
                left.set_title(f"{family.capitalize()}, {skew} skew")
                right.set_title("marginal label distribution")
        add_legend(figure, axes[0, 1], axes[0, 0])
        return figure

    def surfaces(self) -> Figure:
        """Fig. 3: predictions on a uniform test set in two dimensions."""
        figure = Figure(figsize=(12, 7.8))
        for row, skew in enumerate(LOW_TO_HIGH):
            problem = Problem("mvn", skew)
            data = self.splits(problem, count=500_000)
            panels = {"Training labels": (data["train"].y.numpy(), "Train")}
            for method, label in NAMES.items():
                panels[label] = self.predict(problem, method, data["test"].x), method
            panels["Test labels"] = data["test"].y.numpy(), "Test"
            for column, (title, (points, name)) in enumerate(panels.items()):
                index = row * len(panels) + column + 1
                ax = figure.add_subplot(3, len(panels), index, projection="3d")
                plot_surface(points, title if row == 0 else "", self.colour(name), ax)
                if column == 0:
                    style = {"rotation": 90, "va": "center", "transform": ax.transAxes}
                    ax.text2D(-0.08, 0.5, f"{skew} skew", **style)
        margins = {"left": 0.03, "right": 0.99, "bottom": 0.02, "top": 0.95}
        figure.subplots_adjust(**margins, wspace=0.02, hspace=0.02)
        return figure

    def nonlinear(self) -> Figure:
        """Fig. 4: four invertible nonlinear relations."""
        figure = Figure(figsize=(12, 3.2), layout="constrained")
        axes = figure.subplots(1, len(NONLINEAR))
        for problem, ax in zip(NONLINEAR, axes, strict=True):
            self.plot_lines(problem, self.splits(problem)["train"], ax)
            ax.set_title(problem.detail.capitalize())
        add_legend(figure, axes[0])
        return figure

    def seeds(self) -> Figure:
        """The random-seed figure: one problem, every seed's line, one panel per method."""
        problem = Problem("normal", "high")
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        axes = figure.subplots(1, len(NAMES), sharey=True)
        low, high = problem.range
        x = torch.linspace(low, high, 2)[:, None]
        for (method, title), ax in zip(NAMES.items(), axes, strict=True):
            for seed in range(len(self.jobs[problem].seeds)):
                pred, label = self.predict(problem, method, x, seed), None if seed else "each seed"
                ax.plot(x, pred, c=self.colour(method), lw=1, alpha=0.7, label=label)
            ax.plot(x, x, c=self.colour("Oracle"), lw=2, ls="--", label="Oracle")
            ax.set(title=title, xlabel="x", ylim=(low - 1, high + 1))
            ax.legend(loc="upper left")
        axes[0].set_ylabel("y")
        return figure


def plot_surface(points: np.ndarray, title: str, shade: str, ax) -> Axes:
    """Plot the density of (n, 2) labels as a surface with its own scale of heights."""
    edges = np.linspace(-5, 5, 31)
    height, _, _ = np.histogram2d(*points.T, bins=[edges, edges])
    height *= len(edges[1:]) ** 2 / 100 / len(points)  # per unit of area
    a, b = np.meshgrid(*[(edges[1:] + edges[:-1]) / 2] * 2, indexing="ij")
    shades = LinearSegmentedColormap.from_list("", ["#f4f4f4", shade])
    options = {"cmap": shades, "vmin": 0, "edgecolor": shade, "lw": 0.15}
    ax.plot_surface(a, b, height, rstride=1, cstride=1, **options)
    ax.set_title(title, y=1.0)
    ticks = {"zticks": (), "xticks": (-5, 0, 5), "yticks": (-5, 0, 5)}
    ax.set(xlim=(-5, 5), ylim=(-5, 5), zlim=(0, max(1.3 * float(height.max()), 0.02)), **ticks)
    ax.set_xlabel("$y_1$", labelpad=-8)
    ax.set_ylabel("$y_2$", labelpad=-8)
    ax.tick_params(pad=-2)
    return ax


def add_legend(figure: Figure, *axes: Axes) -> None:
    """Add one legend below all panels, with the entries of the given axes."""
    pairs = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in axes]
    found = {label: handle for pair in pairs for handle, label in pair}
    place = {"loc": "outside lower center", "ncols": len(found), "markerscale": 4}
    figure.legend(list(found.values()), list(found), **place)


def plot_all(jobs: Sequence[Job], colour: Callable[[str], str]) -> dict[str, Figure]:
    """Return, by name, every figure whose problems all methods in NAMES have finished."""
    plots = Figures(jobs, colour)
    needed = {plots.skews: TABLE[:6], plots.surfaces: TABLE[6:]}
    needed |= {plots.nonlinear: NONLINEAR, plots.seeds: [Problem("normal", "high")]}
    done = {problem for problem, fits in plots.fits.items() if len(fits) == len(NAMES)}
    return {plot.__name__: plot() for plot in needed if done >= {*needed[plot]}}
