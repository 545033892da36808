"""The figures of IHMR, from finished runs: see `draw`. A plot is a function (data, ax) -> ax.

V: vertices; N: test people; R = 100 rarity regions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig

from datasets.io.arrays import read_npz
from engine.benchmarks.bodies.metrics import NEUTRAL, BodyMetrics
from engine.cli import targets
from engine.runs.folder import AGAIN, finished, read_config
from engine.tables.columns import highlighted
from engine.tables.plots import STYLE, colour, save
from engine.training import build
from metrics.groups import REGIONS, rarity_regions
from models.rotations import geodesic, matrix_from_6d
from models.smpl import read_mean


def draw(cfg: DictConfig, runs: dict[str, list[str]], folder: Path) -> list[Path]:
    """All figures of a finished table into `folder`; runs is {row: the folders of its seeds}."""
    with mpl.rc_context(STYLE):
        return _draw(cfg, runs, folder)


def _draw(cfg: DictConfig, runs: dict[str, list[str]], folder: Path) -> list[Path]:
    (baseline,) = cfg.benchmark.highlight.baseline
    balanced = [row for row in highlighted(cfg.benchmark, "paper", "ours") if row in runs]
    trust = cfg.get("trust")
    run: Any = read_config(Path(runs[baseline][0]), trust)
    metrics: BodyMetrics = targets.make(run.metrics, trust)
    rows = [baseline, *balanced]
    tests = {
        row: [read_npz(Path(one) / "predictions.npz", advice=AGAIN) for one in runs[row]]
        for row in rows
    }
    target = torch.from_numpy(tests[baseline][0]["test_target"])
    found = {
        row: [_errors(metrics, one["test_pred"], target) for one in tests[row]] for row in rows
    }
    rarity = found[baseline][0][1]
    errors = {row: np.mean([error for error, _ in found[row]], 0) for row in rows}
    best = min(balanced, key=lambda row: _balanced(runs[row]))

    figures = {
        "sweep": Figure(figsize=(9.6, 3), layout="constrained"),
        "gain": Figure(figsize=(6, 3)),
    }
    sweep(runs, baseline, balanced, figures["sweep"].subplots(1, 3))
    gain(errors, baseline, rarity, figures["gain"].subplots())
    figures["poses"] = Figure(figsize=(6, 3))
    pose_distribution(run, figures["poses"].subplots())
    preds = {row: tests[row][0]["test_pred"] for row in (baseline, best)}
    figures["panels"] = panels(run, metrics, preds, target, rarity)
    return save(figures, folder, cfg.name)


def _errors(metrics: BodyMetrics, pred: NDArray, target: torch.Tensor) -> tuple[NDArray, NDArray]:
    """MPVPE (N,) and rarity (N,) in millimetres."""
    parts = [
        metrics.errors(p, t)
        for p, t in zip(torch.from_numpy(pred).split(64), target.split(64), strict=True)
    ]
    return (
        torch.cat([errors["mpvpe"] for errors, _ in parts]).numpy(),
        torch.cat([rarity for _, rarity in parts]).numpy(),
    )


def _balanced(folders: list[str]) -> float:
    return float(np.mean([_metrics(one)["metrics"]["test/bmpvpe"] for one in folders]))


def _metrics(folder: str) -> dict[str, Any]:
    return finished(Path(folder)) or {"metrics": {}}


def sweep(runs: dict[str, list[str]], baseline: str, balanced: Sequence[str], axes: Any) -> Any:
    """Strength against bMPVPE on validation and on the test set, and its 5% tail: means over seeds.

    A cross at the upper edge is a strength at which some seed diverged.
    """
    keys = ("val/bmpvpe", "test/bmpvpe", "test/bmpvpe_tail5")
    titles = ("validation, where it is chosen", "test", "test, 5% tail")
    base = [_metrics(one)["metrics"] for one in runs[baseline]]
    for ax, key, title in zip(axes, keys, titles, strict=True):
        ax.axhline(
            mean([one[key] for one in base]), color=colour(baseline), ls="--", label=baseline
        )
        for row in balanced:
            strengths, means, diverged = _sweep_of(runs[row], key)
            if strengths:
                ax.plot(strengths, means, "o-", ms=3, color=colour(row), label=row)
            top = ax.get_xaxis_transform()
            ax.plot(diverged, [0.98] * len(diverged), "x", color=colour(row), transform=top)
        ax.set(xscale="log", xlabel="strength", ylabel="bMPVPE (mm)", title=title)
    axes[2].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    return axes


def mean(values: Sequence[float | None]) -> float:
    """NaN where a run has none, as a test set of few people has no rarest 5%."""
    return float(np.mean(np.array(values, float)))


def _sweep_of(folders: list[str], key: str) -> tuple[list[float], list[float], list[float]]:
    """Strengths that every seed finished, their mean metric, and strengths that diverged."""
    done = [_metrics(one) for one in folders]
    diverged = {float(value) for one in done for value in one.get("diverged", {})}
    values: dict[float, list[float]] = {}
    for one in done:
        for value, folder in one.get("candidate_runs", {}).items():
            values.setdefault(float(value), []).append(_metrics(folder)["metrics"][key])
    whole_rows = sorted(value for value in values if value not in diverged)
    means = [mean(values[value]) for value in whole_rows]
    return whole_rows, means, sorted(diverged)


def gain(
    errors: dict[str, NDArray], baseline: str, rarity: NDArray, ax: Axes, groups: int = 20
) -> Axes:
    """How much lower the error is than the baseline's, from common to rare poses.

    The R regions are shown five at a time, each the mean of its regions, as bMPVPE is of all.
    """
    regions = rarity_regions(torch.from_numpy(rarity)).numpy()
    ticks = np.arange(groups)
    for number, row in enumerate(row for row in errors if row != baseline):
        difference = errors[baseline] - errors[row]
        means = [
            difference[regions == r].mean() if (regions == r).any() else np.nan
            for r in range(REGIONS)
        ]
        blocks = np.array(means).reshape(groups, -1)
        seen = ~np.isnan(blocks).all(1)
        heights = np.array([np.nanmean(block) for block in blocks[seen]])
        ax.bar(ticks[seen] + 0.25 * (number - 1), heights, 0.25, color=colour(row), label=row)
    ax.axhline(0, color="0.3", lw=0.8)
    ax.set(
        xlabel=f"rarity, from the mean pose (0) to the rarest ({groups - 1})",
        ylabel=f"MPVPE below {baseline}'s (mm)",
        xticks=range(0, groups, 2),
    )
    ax.legend()
    return ax


def pose_distribution(run: DictConfig, ax: Axes) -> Axes:
    """The training poses over 100 regions of their geodesic distance to the mean pose."""
    labels = build.dataset(run, "train").labels
    poses = torch.from_numpy(labels[np.isfinite(labels).all(1)]).unflatten(1, (24, 3, 3))
    mean = matrix_from_6d(read_mean(run.metrics.mean)[0].unflatten(-1, (24, 6)))
    degrees = torch.rad2deg(geodesic(poses, mean).mean(1)).numpy()
    ax.hist(degrees, REGIONS, color=colour("Train"))
    ax.set(
        xlabel="mean geodesic distance to the mean pose (degrees)",
        ylabel="training poses",
        yscale="log",
    )
    return ax


def panels(
    run: DictConfig,
    metrics: BodyMetrics,
    preds: dict[str, NDArray],
    target: torch.Tensor,
    rarity: NDArray,
    people: int = 5,
) -> Figure:
    """People of the rarest tenth, evenly spaced in rarity: the image, then the truth and each
    prediction from the front and from the side."""
    order = np.argsort(-rarity)[: max(len(rarity) // 10, people)]
    chosen = order[np.linspace(0, len(order) - 1, people).astype(int)]
    dataset = build.dataset(run, "test")
    shapes = {"truth": target[chosen]}
    shapes |= {row: torch.from_numpy(pred[chosen]) for row, pred in preds.items()}
    genders = {"truth": target[chosen, -1].long()}
    figure = Figure(figsize=(1.5 * (1 + 2 * len(shapes)), 1.6 * people))
    axes = figure.subplots(people, 1 + 2 * len(shapes))
    for line, index in enumerate(chosen):
        axes[line, 0].imshow(dataset.image(int(index)))
    for i, (name, rows) in enumerate(shapes.items()):
        neutral = torch.full((people,), NEUTRAL)
        with torch.no_grad():
            meshes = metrics._mesh(
                rows[:, :216].unflatten(1, (24, 3, 3)),
                rows[:, 216:226],
                genders.get(name, neutral),
            ).numpy()
        shade = colour("Oracle" if name == "truth" else name)
        for line, vertices in enumerate(meshes):
            side = vertices[:, [2, 1, 0]] * np.array([-1, 1, 1])
            for column, view in enumerate((vertices, side)):
                ax = axes[line, 1 + 2 * i + column]
                mesh(view, metrics.bodies[0].triangles, ax, shade)
        axes[0, 1 + 2 * i].set_title(name)
    for ax in axes.flat:
        ax.axis("off")
    return figure


def mesh(vertices: NDArray, triangles: Any, ax: Axes, shade: str) -> Axes:
    """(V, 3) seen along +z with y down, shaded, the farthest triangles first."""
    corners = vertices[triangles]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-12
    order = np.argsort(-corners[:, :, 2].mean(1))
    light = 0.35 + 0.65 * np.abs(normal[order, 2])
    shades = light[:, None] * np.array(to_rgb(shade))
    outlines = corners[order][:, :, :2].tolist()
    ax.add_collection(PolyCollection(outlines, facecolors=shades, rasterized=True))
    middle = (vertices.max(0) + vertices.min(0)) / 2
    ax.set(xlim=(middle[0] - 1, middle[0] + 1), ylim=(middle[1] + 1, middle[1] - 1), aspect="equal")
    return ax
