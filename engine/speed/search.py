"""Random settings of the losses, fast paths against the definition: scripts/search_losses.py.

Every setting is a likelihood, a prior and a batch, drawn at random: smooth priors and spikes, gaps,
equal labels, predictions on the labels, outside of them and very far away, tiny and huge sigma. The
value and the gradients to the predictions and to sigma are compared, in float64, with those of
`BalancedLoss.rows` under autograd, relative to the largest gradient (the value: to one or itself).
Most settings are of many rows, because that is where tables are read.
"""

import math
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from losses import (
    BalancedLoss,
    Batch,
    Bins,
    Flat,
    Gaussian,
    GaussianMixture,
    Huber,
    Laplace,
)
from losses.fast import fused

D64 = torch.float64


def compare(
    loss: BalancedLoss, pred: Tensor, target: Tensor, weight: Tensor | None = None
) -> dict[str, float]:
    """How far the loss is off its definition: value, gradient to pred and to the scale."""
    pred = pred.detach().clone().requires_grad_()
    inputs = [pred, *(p for p in loss.parameters() if p.requires_grad)]
    value = loss(pred, target, weight)
    ours = torch.autograd.grad(value, inputs)
    sums, size = [torch.zeros_like(t) for t in inputs], torch.zeros_like(pred)
    total = 0.0
    if isinstance(loss.prior, Batch):  # every chunk of rows against all labels
        loss = BalancedLoss(loss.likelihood, _Labels(target, weight), loss.strength)
    share = torch.ones(len(pred), dtype=D64) if weight is None else weight
    share = share / share.sum()
    log_p = loss.likelihood.log_prob(target, pred)
    likelihood: Any = loss.likelihood
    unit, own = likelihood.unit, likelihood.value.detach()
    term = torch.autograd.grad(unit * (log_p * share).sum(), pred)[0].abs() + 1e-3 * (
        unit / own * share[:, None]
    )  # what a residual of a thousandth of the scale gives: none is smaller than its rounding
    for rows in torch.arange(len(pred)).split(8192):
        part = loss.rows(pred[rows], target[rows])
        size[rows, 0] = part.detach().abs() + 2 * log_p[rows].detach().abs()
        part = unit * (part * share[rows]).sum()
        total += part.item()
        for out, grad in zip(sums, torch.autograd.grad(part, inputs), strict=True):
            out += grad
    # a row's terms are known to the rounding of the energies that they are differences of
    rounding = 1e5 * torch.finfo(D64).eps * size.clamp(min=1e2) * (sums[0].abs() + term)
    largest = sums[0].abs()[size < 1e8].max().item() if (size < 1e8).any() else 0.0
    off = {
        "value": abs(value.item() - total) / max(1.0, abs(total)),
        "pred": ((ours[0] - sums[0]).abs() / rounding.clamp(min=largest)).max().item(),
    }
    if len(inputs) > 1:  # a mean of rows that cancel: relative to what a row gives, too
        rounding = (rounding * (2 * size).sqrt()).max().item()
        scale = max(sums[1].abs().item(), 1e-3 * largest * len(pred), rounding)
        off["scale"] = (ours[1] - sums[1]).abs().item() / scale
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
        kind = self.one_of(*["even", "random"] * 3, "gap", "spike", "spike", "far", "equal")
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
        rows = self.one_of(60, *[4200] * 15, *[8200] * 5, 20_000)
        count = self.whole(2, 16)
        width = self.log(0.1, 200)
        c = self.centers(count, width)
        weights = self.one_of(torch.ones(count, dtype=D64), self.numbers(count) ** 3 + 1e-9)
        smooth = width / self.log(0.5, 4)
        scale = self.one_of(*[smooth] * 8, self.log(1e-3, 1), self.log(1, 1e3))
        name = self.one_of(*["Gaussian"] * 18, "Laplace", "Huber")
        over = self.one_of(*["bins", "bins", "mixture"] * 4, "batch", "flat")
        scale = max(scale, 1.1e-3)
        makers = {
            "Gaussian": lambda: Gaussian(torch.tensor(scale, dtype=D64), True),
            "Laplace": lambda: Laplace(torch.tensor(scale, dtype=D64), True),
            "Huber": lambda: Huber(torch.tensor(scale, dtype=D64), self.uniform(0.3, 3), True),
        }
        if over == "batch" and rows > 60:
            rows = 4100 if name == "Gaussian" and self.whole(0, 9) == 0 else 300
        if name == "Huber" and over == "mixture":
            over = "bins"
        if name != "Gaussian":
            rows = min(rows, 4200)
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
            deviations = self.one_of(smooth, smooth, width, scale) * (self.numbers(count) * 2 + 0.2)
            deviations = torch.where(self.numbers(count) < 0.02, 1e-3 * deviations, deviations)
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
            kinds = type(loss.likelihood).__name__, type(loss.prior).__name__
            name = " x ".join(kinds)
            pairs[name + (", table" if tables > before else "")] += 1
            most = max(off.values())
            if most > worst[0]:
                worst = most, f"setting {k}: {name}, {off}"
            if progress and (k + 1) % 500 == 0:
                print(
                    f"{k + 1} settings, {tables} tables, worst {worst[0]:.2e}, {worst[1]}",
                    flush=True,
                )
    finally:
        fused.tabulate = tabulate
    return {"settings": settings, "tables": tables, "worst": worst[0], "where": worst[1]} | {
        "pairs": dict(pairs)
    }
