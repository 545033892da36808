"""Random search for a setting in which the fast losses differ from their definition.

    python scripts/search_losses.py settings=10000 seed=0

Every setting is a likelihood, a prior and a batch, drawn at random: smooth priors and spikes, gaps,
equal labels, predictions on the labels, outside of them and very far away, tiny and huge sigma. The
value and the gradients to the predictions and to sigma are compared, in float64, with those of
`BalancedLoss.rows` under autograd, relative to the largest gradient (the value: to one or itself).
Most settings are of many rows, because that is where tables are read.
"""

import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from losses import (  # noqa: E402
    BalancedLoss,
    Batch,
    Bins,
    Flat,
    Gaussian,
    GaussianMixture,
    Huber,
    Laplace,
)
from losses.fast import fused  # noqa: E402

D64 = torch.float64


def compare(
    loss: BalancedLoss, pred: Tensor, target: Tensor, weight: Tensor | None = None
) -> dict[str, float]:
    """How far the loss is off its definition: value, gradient to pred and to the scale."""
    pred = pred.detach().clone().requires_grad_()
    inputs = [pred, *(p for p in loss.parameters() if p.requires_grad)]
    value = loss(pred, target, weight)
    ours = torch.autograd.grad(value, inputs)
    sums = [torch.zeros_like(t) for t in inputs]
    total, whole = 0.0, loss.prior
    if isinstance(whole, Batch):  # every chunk of rows against all labels
        loss = BalancedLoss(loss.likelihood, _Labels(target, weight), loss.strength)
    share = torch.ones(len(pred), dtype=D64) if weight is None else weight
    share = share / share.sum()
    for rows in torch.arange(len(pred)).split(8192):
        part = loss.rows(pred[rows], target[rows])
        part = loss.likelihood.unit * (part * share[rows]).sum()
        total += part.item()
        for out, grad in zip(sums, torch.autograd.grad(part, inputs), strict=True):
            out += grad
    off = {"value": abs(value.item() - total) / max(1.0, abs(total))}
    log_p = loss.likelihood.log_prob(target, pred)
    term = torch.autograd.grad(loss.likelihood.unit * (log_p * share).sum(), pred)[0].abs().max()
    rounding = torch.finfo(D64).eps * log_p.detach().abs().max().clamp(min=1e2)
    for name, a, b in zip(("pred", "scale"), ours, sums, strict=False):
        # where the two terms cancel, all that is left of them is their rounding
        largest = max(b.abs().max().item(), 1e5 * (rounding * term).item())
        if name == "scale":  # a mean of rows that cancel: relative to what a row gives
            largest = max(largest, 1e-3 * sums[0].abs().max().item() * len(pred))
        off[name] = (a - b).abs().max().item() / largest
    return {k: v if math.isfinite(v) else math.inf for k, v in off.items()}


class _Labels(Batch):
    """The labels of a batch, for some of its rows."""

    def __init__(self, labels: Tensor, weight: Tensor | None):
        super().__init__()
        self.labels, self.weight = labels, weight

    def atoms(self, target: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return super().atoms(self.labels, self.weight)


class Draw:
    """Random settings, from one seed."""

    def __init__(self, seed: int):
        self.g = torch.Generator().manual_seed(seed)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=self.g, dtype=D64).item()

    def log(self, low: float, high: float) -> float:
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def whole(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.g))

    def one_of(self, *options: Any) -> Any:
        return options[self.whole(0, len(options) - 1)]

    def numbers(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.g, dtype=D64)

    def centers(self, count: int, width: float) -> Tensor:
        """Evenly, at random, in two clusters with a gap, on a spike, or with one far away."""
        kind = self.one_of("even", "even", "random", "gap", "spike", "far", "equal")
        c = width * self.numbers(count)
        if kind == "even":
            c = torch.linspace(0, width, count, dtype=D64)
        if kind == "gap":
            c = torch.where(c < width / 2, c, c + self.log(0.1, 100) * width)
        if kind == "spike":
            c = torch.where(self.numbers(count) < 0.5, c, c[0] + 1e-4 * c)
        if kind == "far":
            c[0] = self.one_of(-1, 1) * width * self.log(3, 1e5)
        if kind == "equal":
            c = c.round()
        return c + self.one_of(0.0, 0.0, self.uniform(-100, 100), 2000.0)

    def setting(self) -> tuple[BalancedLoss, Tensor, Tensor, Tensor | None]:
        rows = self.one_of(60, 4500, *[8200] * 9, 20_000)
        count = self.whole(2, 40)
        width = self.log(0.1, 200)
        c = self.centers(count, width)
        weights = self.one_of(torch.ones(count, dtype=D64), self.numbers(count) ** 3 + 1e-9)
        smooth = width / self.log(1, 12)
        scale = self.one_of(*[smooth] * 6, self.log(1e-3, 1), self.log(1, 1e3))
        name = self.one_of(*["Gaussian"] * 8, "Laplace", "Huber")
        over = self.one_of(*["bins", "mixture"] * 4, "batch", "flat")
        scale = max(scale, 1.1e-3)
        makers = {
            "Gaussian": lambda: Gaussian(torch.tensor(scale, dtype=D64), True),
            "Laplace": lambda: Laplace(torch.tensor(scale, dtype=D64), True),
            "Huber": lambda: Huber(torch.tensor(scale, dtype=D64), self.uniform(0.3, 3), True),
        }
        if over == "batch" or (name == "Huber" and over == "mixture"):
            over = "bins" if rows > 5000 else "batch"
        if name != "Gaussian" or over == "batch":
            rows = min(rows, 5000)
        span = (c.max() - c.min()).item()
        target = c[torch.randint(count, (rows,), generator=self.g)]
        target = target + smooth * (self.numbers(rows) - 0.5)
        kind = self.one_of("labels", "labels", "wide", "outliers", "on", "far", "equal")
        pred = target + self.one_of(scale, smooth, width) * (self.numbers(rows) * 2 - 1)
        if kind == "wide":
            pred = c.min() + span * (3 * self.numbers(rows) - 1)
        if kind == "outliers":
            some = torch.randint(rows, (self.whole(1, 20),), generator=self.g)
            pred[some] = target[some] = self.one_of(-1, 1) * self.log(1, 1e6) * (1 + width)
        if kind == "on":
            pred = c[torch.randint(count, (rows,), generator=self.g)]
        if kind == "far":
            pred = pred + self.one_of(-1, 1) * self.log(1, 1e3) * scale
        if kind == "equal":
            pred = pred[:1].expand(rows).clone()
        weight = self.one_of(None, None, self.numbers(rows))
        if over == "mixture":
            deviations = self.one_of(smooth, width, scale) * (self.numbers(count) * 2 + 0.05)
            deviations = torch.where(self.numbers(count) < 0.1, 1e-3 * deviations, deviations)
            prior: Any = GaussianMixture(weights, c[:, None], deviations[:, None, None] ** 2)
        else:
            prior = {"bins": lambda: Bins(c, weights), "batch": Batch, "flat": Flat}[over]()
        strength = self.one_of(1.0, 1.0, self.uniform(0, 2))
        return BalancedLoss(makers[name](), prior, strength), pred[:, None], target[:, None], weight


def search(settings: int, seed: int, progress: bool = False) -> dict[str, Any]:
    """The largest difference over so many settings, where it was, and how many read a table."""
    draw, tables, pairs = Draw(seed), 0, Counter()
    worst: tuple[float, str] = (-1.0, "")
    tabulate = fused.tabulate

    def counted(*given: Any) -> Any:
        nonlocal tables
        table = tabulate(*given)
        tables += table.useful
        return table

    fused.tabulate = counted
    try:
        for k in range(settings):
            loss, pred, target, weight = draw.setting()
            before = tables
            off = compare(loss, pred, target, weight)
            name = f"{type(loss.likelihood).__name__} x {type(loss.prior).__name__}"
            pairs[name + (", table" if tables > before else "")] += 1
            most = max(off.values())
            if most > worst[0]:
                worst = most, f"setting {k}: {name}, {off}, sigma {loss.likelihood.value.item()}"
            if progress and (k + 1) % 500 == 0:
                print(f"{k + 1} settings, {tables} tables, worst {worst[0]:.2e}", flush=True)
    finally:
        fused.tabulate = tabulate
    return {"settings": settings, "tables": tables, "worst": worst[0], "where": worst[1]} | {
        "pairs": dict(pairs)
    }


def main() -> None:
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    unknown = sorted(set(given) - {"settings", "seed"})
    if unknown:
        raise SystemExit(f"expected settings=<number> seed=<number>, got {', '.join(unknown)}")
    found = search(int(given.get("settings", 10_000)), int(given.get("seed", 0)), progress=True)
    for name, count in sorted(found.pop("pairs").items()):
        print(f"{count:6d}  {name}")
    for name, value in found.items():
        print(f"{name}: {value}")
    if not found["worst"] <= 1e-4:
        raise SystemExit("a fast loss is off by more than 1e-4 of the largest gradient")


if __name__ == "__main__":
    main()
