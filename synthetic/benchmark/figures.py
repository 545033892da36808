"""The paper's synthetic figures. A plot is a function (data, ax) -> ax; one colour per method.

P: problems; S: seeds; n: points.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from engine.tables.plots import STYLE, colour, save
from synthetic.benchmark.jobs import Job
from synthetic.benchmark.problems import Problem, Split, make_splits

NAMES = {
    "Vanilla": "Least squares",
    "Reweight": "Re-weighting",
    "GAI (true noise)": "Balanced MSE (GAI)",
}


class Fit:
    """The trained lines of one method on one problem: weight (S, D, F), bias (S, D)."""

    def __init__(self, method: str, weight: np.ndarray, bias: np.ndarray):
        self.method, self.weight, self.bias = method, weight, bias

    def __call__(self, x: torch.Tensor, seed: int = 0) -> np.ndarray:
        """(n, F) -> (n, D)."""
        return x.numpy() @ self.weight[seed].T + self.bias[seed]


def fits_of(jobs: Sequence[Job]) -> dict[str, list[Fit]]:
    """{problem name: the fits of the drawn methods}, for every problem that has all of them."""
    found: dict[str, dict[str, Fit]] = {}
    for job in jobs:
        if job.method in NAMES:
            result = job.result()
            for i, problem in enumerate(job.problems):
                fit = Fit(job.method, result["weight"][i], result["bias"][i])
                found.setdefault(problem.name, {})[job.method] = fit
    return {
        name: [fits[method] for method in NAMES]
        for name, fits in found.items()
        if set(NAMES) <= set(fits)
    }


def regression_lines(problem: Problem, split: Split, fits: list[Fit], ax: Axes, seed=0) -> Axes:
    """Training points, the oracle and every method's curve over the label range."""
    low, high = problem.range
    y = torch.linspace(low, high, 200)[:, None]
    x = problem.inverse(y, torch.eye(2))
    ax.scatter(
        split.x[:, 0],
        split.y[:, 0],
        s=3,
        c=colour("Train"),
        alpha=0.4,
        lw=0,
        label="Training data",
    )
    ax.plot(x[:, 0], y[:, 0], c=colour("Oracle"), lw=2.5, label="Oracle")
    for fit in fits:
        pred = fit(problem.features(x), seed)[:, 0]
        ax.plot(x[:, 0], pred, c=colour(fit.method), lw=1.6, label=NAMES[fit.method])
    margin = 0.05 * float(x.max() - x.min())
    ax.set(xlabel="x", ylabel="y", ylim=(low - 1, high + 1))
    ax.set_xlim(float(x.min()) - margin, float(x.max()) + margin)
    return ax


def marginals(problem: Problem, split: Split, test: Split, fits: list[Fit], ax: Axes) -> Axes:
    """Histograms of the training labels, the test labels, and what each method predicts on them."""
    low, high = problem.range
    edges = np.linspace(low, high, 41)
    options = {"bins": edges, "density": True}
    ax.hist(split.y[:, 0], **options, color=colour("Train"), alpha=0.45, label="Training labels")
    ax.hist(
        test.y[:, 0], **options, histtype="step", color=colour("Test"), lw=1.5, label="Test labels"
    )
    for fit in fits:
        pred = fit(test.x)[:, 0]
        ax.hist(pred, **options, histtype="step", color=colour(fit.method), lw=1.4,
                label=NAMES[fit.method])  # fmt: skip
    ax.set(xlabel="label", ylabel="density", xlim=(low, high), ylim=(0, 1.0))
    return ax


def surface(points: np.ndarray, title: str, shade: str, ax) -> Axes:
    """The density of (n, 2) labels as a surface over the label range; heights are its own."""
    edges = np.linspace(-5, 5, 31)
    height, _, _ = np.histogram2d(*points.T, bins=[edges, edges])
    height *= len(edges[1:]) ** 2 / 100 / len(points)  # per unit of area
    a, b = np.meshgrid(*[(edges[1:] + edges[:-1]) / 2] * 2, indexing="ij")
    shades = LinearSegmentedColormap.from_list("", ["#f4f4f4", shade])
    options = {"cmap": shades, "vmin": 0, "edgecolor": shade, "lw": 0.15}
    ax.plot_surface(a, b, height, rstride=1, cstride=1, **options)
    ax.set_title(title, y=1.0)
    top = max(1.3 * float(height.max()), 0.02)
    ax.set(
        xlim=(-5, 5), ylim=(-5, 5), zlim=(0, top), zticks=(), xticks=(-5, 0, 5), yticks=(-5, 0, 5)
    )
    ax.set_xlabel("$y_1$", labelpad=-8)
    ax.set_ylabel("$y_2$", labelpad=-8)
    ax.tick_params(pad=-2)
    return ax


def draw_skews(jobs: Sequence[Job], fits: dict[str, list[Fit]]) -> Figure | None:
    """Fig. 2: lines and marginals, three skews from low to high, for both distributions."""
    problems = {p.name: p for job in jobs for p in job.problems if p.dims == 1}
    if not all(f"{f}_{s}" in fits for f in ("normal", "exponential") for s in ROWS):
        return None
    figure = Figure(figsize=(12, 7.5), layout="constrained")
    axes = figure.subplots(3, 4)
    for row, skew in enumerate(ROWS):
        for pair, family in enumerate(("normal", "exponential")):
            problem = problems[f"{family}_{skew}"]
            data = splits_of(jobs, problem)
            left, right = axes[row, 2 * pair], axes[row, 2 * pair + 1]
            own = fits[problem.name]
            regression_lines(problem, data["train"], own, left)
            marginals(problem, data["train"], data["test"], own, right)
            left.set_title(f"{family.capitalize()}, {skew} skew")
            right.set_title("marginal label distribution")
    legend_below(figure, axes[0, 1], axes[0, 0])
    return figure


ROWS = ("low", "moderate", "high")


def draw_surfaces(jobs: Sequence[Job], fits: dict[str, list[Fit]]) -> Figure | None:
    """Fig. 3: what each method predicts on a uniform test set in two dimensions."""
    problems = {p.name: p for job in jobs for p in job.problems if p.dims == 2}
    names = [name for name in (f"mvn_{skew}" for skew in ROWS) if name in fits]
    if not names:
        return None
    figure = Figure(figsize=(12, 2.6 * len(names)))
    for row, name in enumerate(names):
        data = splits_of(jobs, problems[name], count=500_000)
        panels = {"Training labels": (data["train"].y.numpy(), "Train")}
        panels |= {NAMES[f.method]: (f(data["test"].x), f.method) for f in fits[name]}
        panels["Test labels"] = data["test"].y.numpy(), "Test"
        for column, (title, (points, whose)) in enumerate(panels.items()):
            place = row * len(panels) + column + 1
            ax = figure.add_subplot(len(names), len(panels), place, projection="3d")
            surface(points, title if row == 0 else "", colour(whose), ax)
            if column == 0:
                ax.text2D(-0.08, 0.5, f"{problems[name].detail} skew", rotation=90,
                          va="center", transform=ax.transAxes)  # fmt: skip
    figure.subplots_adjust(left=0.03, right=0.99, bottom=0.02, top=0.95, wspace=0.02, hspace=0.02)
    return figure


def draw_nonlinear(jobs: Sequence[Job], fits: dict[str, list[Fit]]) -> Figure | None:
    """Fig. 4: four invertible nonlinear relations."""
    problems = [p for job in jobs for p in job.problems if p.family == "nonlinear"]
    problems = list(dict.fromkeys(p for p in problems if p.name in fits))
    if not problems:
        return None
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    axes = figure.subplots(1, len(problems), squeeze=False)[0]
    for problem, ax in zip(problems, axes, strict=True):
        regression_lines(problem, splits_of(jobs, problem)["train"], fits[problem.name], ax)
        ax.set_title(problem.detail.capitalize())
    legend_below(figure, axes[0])
    return figure


def draw_seeds(jobs: Sequence[Job], fits: dict[str, list[Fit]]) -> Figure | None:
    """The random-seed figure: the same problem, every seed's line, a panel per method."""
    name = "normal_high"
    if name not in fits:
        return None
    problem = next(p for job in jobs for p in job.problems if p.name == name)
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.subplots(1, len(NAMES), sharey=True)
    low, high = problem.range
    x = torch.linspace(low, high, 2)[:, None]
    for fit, ax in zip(fits[name], axes, strict=True):
        for seed in range(len(fit.bias)):
            label = "each seed" if seed == 0 else None
            ax.plot(x, fit(x, seed), c=colour(fit.method), lw=1, alpha=0.7, label=label)
        ax.plot(x, x, c=colour("Oracle"), lw=2, ls="--", label="Oracle")
        ax.set(title=NAMES[fit.method], xlabel="x", ylim=(low - 1, high + 1))
        ax.legend(loc="upper left")
    axes[0].set_ylabel("y")
    return figure


def legend_below(figure: Figure, *axes: Axes) -> None:
    """One legend for all panels, of what the given ones show."""
    found: dict[str, Artist] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=len(found),
                  markerscale=4)  # fmt: skip


def splits_of(jobs: Sequence[Job], problem: Problem, count: int | None = None) -> dict[str, Split]:
    """The data of the first seed, or `count` pairs drawn the same way, for smooth densities."""
    job = next(job for job in jobs if problem in job.problems)
    samples, held_out = count or job.training.samples, count or job.training.held_out
    return make_splits(problem, job.seeds[0], samples, held_out)


FIGURES = {
    "skews": draw_skews,
    "surfaces": draw_surfaces,
    "nonlinear": draw_nonlinear,
    "seeds": draw_seeds,
}


def draw_all(jobs: Sequence[Job], folder: Path) -> list[Path]:
    """Every figure that the finished jobs allow, as <folder>/synthetic_<name>.png and .pdf."""
    fits = fits_of(jobs)
    with mpl.rc_context(STYLE):
        drawn = {name: draw(jobs, fits) for name, draw in FIGURES.items()}
        return save({name: f for name, f in drawn.items() if f is not None}, folder, "synthetic")
