"""Random settings of the losses, fast paths against the definition: scripts/search_losses.py.

Every setting is a likelihood, a prior and a batch, drawn at random: smooth priors and spikes, gaps,
equal labels, predictions on the labels, outside of them and very far away, tiny and huge sigma.
Most settings are of many rows, because that is where tables are read. The loss is compared with
`BalancedLoss.rows` under autograd, both in float64:

    value   the difference of the means, relative to the mean size of a row
    pred    the largest difference of a row's gradient, relative to the largest gradient
    scale   the difference of the gradients to sigma, relative to the mean size of a row's

Two things keep an outlier from hiding the others, and rounding from looking like an error:

- A row whose energy |log p| is so large that float64 does not know the shares of the components to
  `BLUR` is judged by its own gradient, and its gradient is not "the largest". Such rows are `far`.
- A gradient is a difference of two terms, likelihood and evidence. The definition itself knows a
  term only to the rounding of the energies in its exponents. Where the terms cancel, so much is no
  difference. A setting in which this decides, because the gradients of all of its rows cancel (to
  nothing, far outside of the labels), is counted as `cancelled`.
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
from losses.batches import samples
from losses.fast import fused

D64 = torch.float64
EPS = torch.finfo(D64).eps
BLUR = 1e-6
TOLERANCE = 1e-4


def compare(
    loss: BalancedLoss, pred: Tensor, target: Tensor, weight: Tensor | None = None
) -> dict[str, float]:
    """How far the loss is off its definition: value, gradient to pred and to the scale."""
    return _judge(loss, pred, target, weight)[0]


def _judge(
    loss: BalancedLoss, pred: Tensor, target: Tensor, weight: Tensor | None
) -> tuple[dict[str, float], bool, bool]:
    """The same, and whether a row is `far` and the setting `cancelled`."""
    pred = pred.detach().clone().requires_grad_()
    inputs = [pred, *(p for p in loss.parameters() if p.requires_grad)]
    value = loss(pred, target, weight)
    ours = torch.autograd.grad(value, inputs)
    rows = _definition(loss, pred, target, weight)
    known = EPS * rows["energy"] <= BLUR
    largest = rows["pred"].abs()[known].max() if known.any() else torch.tensor(0.0, dtype=D64)
    own = rows["pred"].abs().clamp(min=largest)
    blur = EPS * rows["energy"].clamp(min=10) / TOLERANCE
    rounding = blur * rows["term"]
    off = {
        "value": _relative(value - rows["value"].sum(), rows["value"].abs().sum()),
        "pred": _relative(ours[0][:, 0] - rows["pred"], own.maximum(rounding)).max(),
    }
    if len(inputs) > 1:
        size = rows["scale"].abs().sum().maximum((blur * rows["scale_term"]).sum())
        off["scale"] = _relative(ours[1] - rows["scale"].sum(), size)
    off = {k: v.item() if v.isfinite() else math.inf for k, v in off.items()}
    return off, not bool(known.all()), bool((rounding > own)[known].any())


def _relative(difference: Tensor, size: Tensor) -> Tensor:
    """How large a difference is; none is none, whatever the size."""
    return torch.where(difference == 0, 0.0, difference.abs() / size)


def _definition(
    loss: BalancedLoss, pred: Tensor, target: Tensor, weight: Tensor | None
) -> dict[str, Tensor]:
    """Theorem 1: what each row adds to the loss and to its gradients to pred and to the scale, the
    size of the two terms in each of these gradients, and of the row's energies, (N,) each.
    """
    likelihood: Any = loss.likelihood
    if isinstance(loss.prior, Batch):  # every chunk of rows against all labels
        loss = BalancedLoss(likelihood, _Labels(target, weight), loss.strength)
    share = torch.ones(len(pred), dtype=D64) if weight is None else weight
    share = likelihood.unit * share / share.sum()
    scale = likelihood.raw.detach().clone().requires_grad_()
    plain, state = _Rows(loss), {f"loss.likelihood.{likelihood.symbol}": scale}
    parts = []
    for rows in torch.arange(len(pred)).split(8192):
        x, y, part = pred[rows].detach().requires_grad_(), target[rows], share[rows]
        value, log_p = torch.func.functional_call(plain, state, (x, y))
        value = value * part
        ones = torch.ones_like(value, requires_grad=True)  # their gradient: each row's own share
        to_pred, total = torch.autograd.grad((value * ones).sum(), [x, scale], create_graph=True)
        (to_scale,) = torch.autograd.grad(total, ones)
        term, total = torch.autograd.grad(
            (log_p * part * ones).sum(), [x, scale], create_graph=True
        )
        (scale_term,) = torch.autograd.grad(total, ones)
        energy = log_p.abs() + loss.prior.log_evidence(likelihood, x, y).abs()
        terms = term[:, 0].abs() + to_pred[:, 0].abs(), scale_term.abs() + to_scale.abs()
        parts.append([t.detach() for t in (value, to_pred[:, 0], to_scale, *terms, energy)])
    names = ("value", "pred", "scale", "term", "scale_term", "energy")
    return dict(zip(names, (torch.cat(part) for part in zip(*parts, strict=True)), strict=True))


class _Rows(torch.nn.Module):
    """Theorem 1 row by row, as a module, and its first term."""

    def __init__(self, loss: BalancedLoss):
        super().__init__()
        self.loss = loss

    def forward(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return self.loss.rows(pred, target), self.loss.likelihood.log_prob(target, pred)


class _Labels(Batch):
    """The labels of a batch, for some of its rows."""

    def __init__(self, labels: Tensor, weight: Tensor | None):
        super().__init__()
        self.labels = samples(labels, weight)

    def atoms(self, target: Tensor) -> tuple[Tensor, Tensor]:
        return super().atoms(self.labels)


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
        over = self.one_of(*["bins", "bins", "mixture"] * 6, "batch", "flat")
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
    """The largest difference over so many settings, where it was, and how they were judged."""
    draw, pairs, worst, where = Draw(seed), Counter(), -1.0, ""
    counts = {"settings": settings, "tables": 0, "far": 0, "cancelled": 0}
    tabulate = fused.tabulate

    def counted(*given: Any) -> Any:
        table = tabulate(*given)
        counts["tables"] += table.useful
        return table

    fused.tabulate = counted
    try:
        for k in range(settings):
            setting = draw.setting()
            before = counts["tables"]
            off, far, cancelled = _judge(*setting)
            counts["far"] += far
            counts["cancelled"] += cancelled
            kinds = (type(part).__name__ for part in (setting[0].likelihood, setting[0].prior))
            name = " x ".join(kinds) + (", table" if counts["tables"] > before else "")
            pairs[name] += 1
            if max(off.values()) > worst:
                worst, where = max(off.values()), f"seed {seed}, setting {k}: {name}, {off}"
            if progress and (k + 1) % 500 == 0:
                print(f"{k + 1} settings, {counts['tables']} tables, worst {worst:.2e}", flush=True)
    finally:
        fused.tabulate = tabulate
    return {**counts, "worst": worst, "where": where, "pairs": dict(pairs)}
