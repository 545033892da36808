"""What scripts/benchmark.py compares: each loss with the textbook's, and the batched synthetic
benchmark with one run at a time.
"""

from collections.abc import Callable

import torch
from omegaconf import OmegaConf
from torch import Tensor

from engine import ROOT
from engine.speed.textbook import (
    broadcast_atoms,
    broadcast_mixture,
    mse,
    normal_batch,
    normal_mixture,
)
from engine.speed.timing import Bench, Row, ratio
from losses import BMC, BNI, GAI, Bins, GaussianMixture
from synthetic.benchmark.methods import METHODS, trained_together
from synthetic.benchmark.problems import TABLE
from synthetic.benchmark.program import Training
from synthetic.benchmark.speed import alone, together

PIXELS = 8 * 114 * 152  # a batch of depth maps: 138,624 rows


def losses(bench: Bench) -> list[Row]:
    g = torch.Generator().manual_seed(0)
    where = bench.device

    def batch(n: int, dims: int, low: float, high: float) -> tuple[Tensor, Tensor]:
        pred, target = low + (high - low) * torch.rand(2, n, dims, generator=g)
        return pred.to(where), target.to(where)

    def mixture(components: int, dims: int, spread: float) -> GaussianMixture:
        root = torch.randn(components, dims, dims, generator=g) / dims**0.5
        covariances = root @ root.mT + 0.1 * torch.eye(dims)
        means = spread * torch.rand(components, dims, generator=g)
        return GaussianMixture(torch.rand(components, generator=g) + 0.1, means, covariances)

    rows, one = [], torch.tensor(1.0, device=where)
    learned = torch.tensor(1.0, device=where, requires_grad=True)

    maps = batch(PIXELS, 1, 0.7, 10)
    centers, counts = torch.arange(0.05, 10, 0.1), torch.rand(100, generator=g) + 0.05
    bins, mix = Bins(centers, counts).to(where), mixture(16, 1, 10).to(where)
    many = {"time_goal": 1 / 10, "memory_goal": 1 / 10}
    for learn, sigma in ((False, one), (True, learned)):
        note = f"N = {PIXELS:,}{', sigma learned' if learn else ''}"
        textbook = broadcast_atoms(bins.centers[:, None], bins.weights, sigma)
        ours = BNI(bins, 1.0, learn).to(where)
        rows.append(
            bench.compare(f"BNI 100 bins, {note}", ours, "broadcast", textbook, maps, **many)
        )
        ours, name = GAI(mix, 1.0, learn).to(where), f"GAI 16 components, {note}"
        textbook = normal_mixture(mix, sigma)
        rows.append(bench.compare(name, ours, "MultivariateNormal", textbook, maps, **many))
        textbook = broadcast_mixture(mix, sigma)
        rows.append(bench.compare(name, ours, "broadcast", textbook, maps, memory_goal=None))

    poses, mix = batch(128, 216, -1, 1), mixture(16, 216, 1).to(where)
    for learn, sigma in ((False, one), (True, learned)):
        note = f"D = 216, N = 128{', sigma learned' if learn else ''}"
        ours, name = GAI(mix, 1.0, learn).to(where), f"GAI 16 components, {note}"
        textbook, goal = normal_mixture(mix, sigma, both=True), {"time_goal": 1 / 15}
        rows.append(bench.compare(name, ours, "MultivariateNormal", textbook, poses, **goal))
        textbook = normal_mixture(mix, sigma)
        rows.append(
            bench.compare(name, ours, "MultivariateNormal, prior's term only", textbook, poses)
        )
        ours, textbook = BMC(1.0, learn).to(where), normal_batch(sigma)
        rows.append(
            bench.compare(
                f"BMC, {note}", ours, "MultivariateNormal", textbook, poses, time_goal=0.01
            )
        )
        textbook = broadcast_atoms(None, None, sigma)
        rows.append(bench.compare(f"BMC, {note}", ours, "broadcast", textbook, poses))

    small, mix = batch(256, 1, 0, 10), mixture(8, 1, 10).to(where)
    for learn in (False, True):
        note = f"N = 256, D = 1{', sigma learned' if learn else ''}"
        for name, ours in {
            "GAI 8 components": GAI(mix, 1.0, learn),
            "BMC": BMC(1.0, learn),
            "BNI 100 bins": BNI(bins, 1.0, learn),
        }.items():
            ours, goal = ours.to(where), {"time_goal": 3.0}
            rows.append(bench.compare(f"{name}, {note}", ours, "plain MSE", mse, small, **goal))
    return rows


def compiled(bench: Bench) -> list[Row]:
    """torch.compile against plain calls, for a batch of depth maps."""
    bins, mix, maps = depth_priors(bench)
    rows = []
    for learn in (False, True):
        note = f"N = {PIXELS:,}{', sigma learned' if learn else ''}"
        for name, loss in (("BNI", BNI(bins, 1.0, learn)), ("GAI", GAI(mix, 1.0, learn))):
            plain = loss.to(bench.device)
            ours = torch.compile(plain, fullgraph=True)
            goal = {"time_goal": 1.0}
            rows.append(bench.compare(f"{name}, {note}", ours, "not compiled", plain, maps, **goal))
    return rows


def threshold(bench: Bench) -> list[Row]:
    """Where tables begin: a step must not jump."""
    bins, mix, (pred, target) = depth_priors(bench)
    few, rows = 4096, []
    for learn in (False, True):
        for name, loss in (("BNI", BNI(bins, 1.0, learn)), ("GAI", GAI(mix, 1.0, learn))):
            loss = loss.to(bench.device)
            more, fewer = (bench.step(loss, pred[:n], target[:n]) for n in (few + 1, few))
            name = f"{name}, N = {few + 1:,}{', sigma learned' if learn else ''}"
            rows.append(bench.take_turns(name, more, f"N = {few:,}", fewer, time_goal=1.5))
    return rows


def depth_priors(bench: Bench) -> tuple[Bins, GaussianMixture, tuple[Tensor, Tensor]]:
    """100 bins and 16 components over ten metres, and a batch of depth maps."""
    g = torch.Generator().manual_seed(0)
    pred, target = (0.7 + 9.3 * torch.rand(2, PIXELS, 1, generator=g)).to(bench.device)
    bins = Bins(torch.arange(0.05, 10, 0.1), torch.rand(100, generator=g) + 0.05)
    deviations = 0.3 + torch.rand(16, 1, 1, generator=g)
    mix = GaussianMixture(torch.ones(16), 10 * torch.rand(16, 1, generator=g), deviations**2)
    return bins.to(bench.device), mix.to(bench.device), (pred, target)


def synthetic(bench: Bench) -> list[Row]:
    """An epoch of a run: all runs of a method in one program, against one run at a time."""
    config = OmegaConf.load(ROOT / "configs/synthetic.yaml")
    rows, seeds, against = [], range(10), "one run at a time"
    for family, settings in {"normal": "linear", "exponential": "linear", "mvn": "mvn"}.items():
        training = Training(**config.training[settings])
        columns = [problem for problem in TABLE if problem.family == family]
        for method, make_loss in METHODS.items():
            problems = trained_together(method, columns, len(seeds))[0]
            runs = len(problems) * len(seeds)
            ours = together(make_loss, problems, seeds, training)
            theirs = alone(make_loss, problems[0], training)
            name = f"{family}, {method}, {runs} runs"
            rows.append(bench.take_turns(name, ours, against, theirs, runs))
    ours, theirs = sum(row.ours_ms for row in rows), sum(row.theirs_ms for row in rows)
    name = "an epoch of every column and method"
    return [*rows, Row(name, against, ours, theirs, ours / theirs, time_goal=1 / 25)]


SUITES: dict[str, Callable[[Bench], list[Row]]] = {
    "losses": losses,
    "compiled": compiled,
    "threshold": threshold,
    "synthetic": synthetic,
}


def rows_with_goals(report: dict) -> list[dict]:
    suites = [rows for name, rows in report.items() if name != "meta"]
    return [row for rows in suites for row in rows if row["time_goal"] is not None]


def markdown(rows: list[dict]) -> str:
    """The lines that have a goal, as the README shows them."""
    lines = ["| | against | time | goal | memory | goal |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        numbers = (ratio(row[k]) for k in ("time", "time_goal", "memory", "memory_goal"))
        lines.append(f"| {row['name']} | {row['against']} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"
