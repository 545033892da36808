"""Figures of an IHMR table, from its finished runs.

    sweep    strength against bMPVPE
    gain     gain in MPVPE over the baseline, from common to rare poses
    poses    histogram of the training poses
    panels   images, true meshes and predicted meshes of rare poses

Shapes: V vertices, N test people.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import roma
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
from engine.tables.plots import colour, save, styled
from engine.training import build
from metrics.groups import REGIONS, rarity_regions
from models.smpl import mean_rotations

Runs = Mapping[str, Sequence[str]]  # {row: the folders of its seeds}
GROUPS = 20  # bars of the gain, each of five rarity regions
PEOPLE = 5  # lines of the panels
SWEEP = {
    "val/bmpvpe": "validation (strength chosen here)",
    "test/bmpvpe": "test",
    "test/bmpvpe_tail5": "test, 5% tail",
}


@styled
def plot(cfg: DictConfig, runs: Runs, folder: Path) -> list[Path]:
    """Plot all figures of a finished table into `folder`."""
    (baseline,) = cfg.benchmark.highlight.baseline
    balanced = [row for row in highlighted(cfg.benchmark, "paper", "ours") if row in runs]
    trust = cfg.get("trust")
    run: Any = read_config(Path(runs[baseline][0]), trust)
    metrics: BodyMetrics = targets.make(run.metrics, trust)
    tests = {
        row: [read_npz(Path(one) / "predictions.npz", advice=AGAIN) for one in runs[row]]
        for row in (baseline, *balanced)
    }
    target = torch.from_numpy(tests[baseline][0]["test_target"])
    samples = {  # (seeds, N, 1 + E)
        row: np.stack([metrics.samples(torch.from_numpy(s["test_pred"]), target) for s in seeds])
        for row, seeds in tests.items()
    }
    rarity = samples[baseline][0, :, 0]
    mpvpe = {row: values[:, :, 1].mean(0) for row, values in samples.items()}
    best = min(balanced, key=lambda row: _mean(runs[row], "test/bmpvpe"))
    preds = {row: tests[row][0]["test_pred"] for row in (baseline, best)}
    figures = {
        "sweep": Figure(figsize=(9.6, 3), layout="constrained"),
        "gain": Figure(figsize=(6, 3)),
        "poses": Figure(figsize=(6, 3)),
    }
    sweep(runs, baseline, balanced, figures["sweep"].subplots(1, 3))
    gain(mpvpe, baseline, rarity, figures["gain"].subplots())
    pose_distribution(run, figures["poses"].subplots())
    figures["panels"] = panels(run, metrics, preds, target, rarity)
    return save(figures, folder, cfg.name)


def _mean(folders: Sequence[str], key: str) -> float:
    """Mean over the seeds; NaN where one has none: a small test set has no rarest 5%."""
    metrics = [(finished(Path(one)) or {"metrics": {}})["metrics"] for one in folders]
    return float(np.mean(np.array([one[key] for one in metrics], float)))


def sweep(runs: Runs, baseline: str, balanced: Sequence[str], axes: Any) -> Any:
    """bMPVPE of each strength, means over seeds; a cross at the top: some seed diverged."""
    for ax, (key, title) in zip(axes, SWEEP.items(), strict=True):
        level = _mean(runs[baseline], key)
        ax.axhline(level, color=colour(baseline), ls="--", label=baseline)
        for row in balanced:
            seeds = [finished(Path(folder)) or {} for folder in runs[row]]
            diverged = sorted({float(s) for seed in seeds for s in seed.get("diverged", {})})
            tried: dict[float, list[str]] = {}  # {strength: the runs of its seeds}
            for seed in seeds:
                for strength, run in seed.get("candidate_runs", {}).items():
                    tried.setdefault(float(strength), []).append(run)
            means = {s: _mean(tried[s], key) for s in sorted(tried) if s not in diverged}
            if means:
                strengths, values = list(means), list(means.values())
                ax.plot(strengths, values, "o-", ms=3, color=colour(row), label=row)
            top = ax.get_xaxis_transform()
            look = {"color": colour(row), "transform": top, "linestyle": "", "marker": "x"}
            label = f"{row}, diverged" if diverged else None
            ax.plot(diverged, [0.98] * len(diverged), label=label, **look)
        ax.set(xscale="log", xlabel="strength", ylabel="bMPVPE (mm)", title=title)
    axes[2].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    return axes


def gain(errors: Mapping[str, NDArray], baseline: str, rarity: NDArray, ax: Axes) -> Axes:
    """Gain in error over the baseline, from common to rare poses.

    Each bar is the mean over five of the 100 rarity regions, as bMPVPE is over all.
    """
    regions = rarity_regions(torch.from_numpy(rarity)).numpy()
    for number, row in enumerate(row for row in errors if row != baseline):
        means: Any = pd.Series(errors[baseline] - errors[row]).groupby(regions).mean()
        bars = means.groupby(means.index * GROUPS // REGIONS).mean()
        ax.bar(bars.index + 0.25 * (number - 1), bars, 0.25, color=colour(row), label=row)
    ax.axhline(0, color="0.3", lw=0.8)
    ax.set_xlabel(f"rarity, from the mean pose (0) to the rarest ({GROUPS - 1})")
    ax.set(ylabel=f"gain in MPVPE over {baseline} (mm)", xticks=range(0, GROUPS, 2))
    ax.legend()
    return ax


def pose_distribution(run: DictConfig, ax: Axes) -> Axes:
    """Histogram of the training poses by their geodesic distance to the mean pose."""
    labels = build.dataset(run, "train").labels
    poses = torch.from_numpy(labels[np.isfinite(labels).all(1)]).unflatten(1, (24, 3, 3))
    distance = roma.rotmat_geodesic_distance(poses, mean_rotations(run.metrics.mean)).mean(1)
    degrees = torch.rad2deg(distance).numpy()
    ax.hist(degrees, REGIONS, color=colour("Train"))
    ax.set(yscale="log", ylabel="training poses")
    ax.set_xlabel("mean geodesic distance to the mean pose (degrees)")
    return ax


def panels(
    run: DictConfig,
    metrics: BodyMetrics,
    preds: Mapping[str, NDArray],
    target: torch.Tensor,
    rarity: NDArray,
) -> Figure:
    """People of the rarest tenth, evenly spaced in rarity: the image, then the true mesh and each
    predicted one from the front and from the side."""
    order = np.argsort(-rarity)[: max(len(rarity) // 10, PEOPLE)]
    chosen = order[np.linspace(0, len(order) - 1, PEOPLE).astype(int)]
    dataset = build.dataset(run, "test")
    neutral = torch.full((PEOPLE,), NEUTRAL)
    shown = {"truth": (target[chosen], target[chosen, -1].long())}
    shown |= {row: (torch.from_numpy(pred[chosen]), neutral) for row, pred in preds.items()}
    figure = Figure(figsize=(1.5 * (1 + 2 * len(shown)), 1.6 * PEOPLE))
    axes = figure.subplots(PEOPLE, 1 + 2 * len(shown))
    for line, index in enumerate(chosen):
        axes[line, 0].imshow(dataset.image(int(index)))
    for i, (name, (rows, gender)) in enumerate(shown.items()):
        rotations = rows[:, :216].unflatten(1, (24, 3, 3))
        with torch.no_grad():
            meshes = metrics.mesh(rotations, rows[:, 216:226], gender).numpy()
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
    """Shaded mesh (V, 3) seen along +z with y down, the farthest triangles plotted first."""
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
