"""Random settings of the losses, compared with their definition: scripts/search_losses.py.

A setting is a random likelihood, prior and batch: smooth priors and spikes, gaps, equal labels,
predictions on the labels, outside of them and very far away, tiny and huge sigma. Most settings
have many samples, where tables are read. The loss is compared with Theorem 1 in float64:

    value   difference of the means, relative to the mean size of a sample's loss
    pred    largest difference of a sample's gradient, relative to the largest gradient
    scale   difference of the gradients to sigma, relative to the mean size of a sample's

A sample whose energy |log p| is so large that float64 does not resolve the components' shares is
`far`: it is compared with its own gradient. Where likelihood and evidence cancel, the rounding of
their energies is no difference; a setting in which this decides is `cancelled`. Every third setting
is a corner of corners.py, in float32.
"""

import math
import warnings
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp, vjp
from torch.nn.utils.stateless import _reparametrize_module

from losses import BalancedLoss, Batch, Bins, Flat, Gaussian, GaussianMixture, Huber, Laplace
from losses.batches import samples
from losses.fast import mean

from .corners import compare_corner

D64 = torch.float64
EPS = torch.finfo(D64).eps
BLUR = 1e-6
TOLERANCE = 1e-4


def compare(
    loss: BalancedLoss, pred: Tensor, target: Tensor, weight: Tensor | None = None
) -> tuple[dict[str, float], bool, bool]:
    """Return the relative differences of value and gradients, and whether a sample is `far` and
    the setting `cancelled`.
    """
    pred = pred.detach().clone().requires_grad_()
    inputs = [pred, *(p for p in loss.parameters() if p.requires_grad)]
    value = loss(pred, target, weight)
    ours = torch.autograd.grad(value, inputs)
    parts = torch.arange(len(pred)).split(8192)
    each = [_definition(loss, pred.detach(), target, weight, some) for some in parts]
    rows, slope, term, to_scale, scale_term, energy = (
        torch.cat(p) for p in zip(*each, strict=True)
    )
    known = EPS * energy <= BLUR
    largest = slope.abs()[known].max() if known.any() else torch.tensor(0.0, dtype=D64)
    own = slope.abs().clamp(min=largest)
    blur = EPS * energy.clamp(min=10) / TOLERANCE
    off = {
        "value": _relative(value - rows.sum(), rows.abs().sum()),
        "pred": _relative(ours[0][:, 0] - slope, own.maximum(blur * term)).max(),
    }
    if len(inputs) > 1:
        size = to_scale.abs().sum().maximum((blur * scale_term).sum())
        off["scale"] = _relative(ours[1] - to_scale.sum(), size)
    found = {k: v.item() if v.isfinite() else math.inf for k, v in off.items()}
    return found, not bool(known.all()), bool((blur * term > own)[known].any())


def _relative(difference: Tensor, size: Tensor) -> Tensor:
    return torch.where(difference == 0, 0.0, difference.abs() / size)


def _definition(
    loss: BalancedLoss, pred: Tensor, target: Tensor, weight: Tensor | None, some: Tensor
) -> tuple[Tensor, ...]:
    """Theorem 1 for some samples: their part of the loss and of its gradients to pred and to the
    scale, the size of the terms of these gradients, and the energies, (n,) each.
    """
    likelihood: Any = loss.likelihood
    share = torch.ones(len(pred), dtype=D64) if weight is None else weight
    share = (likelihood.unit * share / share.sum())[some].detach()
    labels = samples(target, weight)  # a batch prior takes them all

    def terms(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        with _reparametrize_module(likelihood, {likelihood.symbol: scale}):
            log_p = likelihood.log_prob(target[some], x)
            evidence = loss.prior.log_evidence(likelihood, x, labels)
            return loss.strength * evidence.expand(len(x)) * share, log_p * share

    x, scale = pred[some], likelihood.raw.detach()
    (evidence, log_p), pull = vjp(lambda x: terms(x, scale), x)  # pyright: ignore
    one, none = torch.ones_like(share), torch.zeros_like(share)
    of_evidence, of_log_p = (pull(v)[0][:, 0] for v in ((one, none), (none, one)))
    with warnings.catch_warnings():  # torch scripts its own derivatives at the first jvp
        warnings.filterwarnings("ignore", ".*torch.jit.script", FutureWarning)
        to_scale = jvp(lambda s: terms(x, s), (scale,), (torch.ones_like(scale),))[1]
    slope, scale_slope = of_evidence - of_log_p, to_scale[0] - to_scale[1]
    energy = (log_p / share).abs() + loss.prior.log_evidence(likelihood, x, labels).abs()
    found = (
        *(evidence - log_p, slope, of_log_p.abs() + slope.abs()),
        *(scale_slope, to_scale[1].abs() + scale_slope.abs(), energy.nan_to_num(nan=0.0)),
    )
    return tuple(t.detach() for t in found)


class Draw:
    """Random settings from one seed."""

    def __init__(self, seed: int):
        self.g = torch.Generator().manual_seed(seed)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=self.g, dtype=D64).item()

    def log(self, low: float, high: float) -> float:
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def integer(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.g))

    def one_of(self, *options: Any) -> Any:
        return options[self.integer(0, len(options) - 1)]

    def numbers(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.g, dtype=D64)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.g, dtype=D64)

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
        count = self.integer(2, 16)
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
            rows = 4100 if name == "Gaussian" and self.integer(0, 9) == 0 else 300
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
            some = torch.randint(rows, (self.integer(1, 20),), generator=self.g)
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
    """Return the largest difference over random settings, where it is, and counts of them."""
    draw, pairs, worst, where = Draw(seed), Counter(), -1.0, ""
    counts = {"settings": settings, "corners": 0, "tables": 0, "far": 0, "cancelled": 0}
    tabulate = mean.tabulate

    def counted(*given: Any) -> Any:
        table = tabulate(*given)
        counts["tables"] += table is not None
        return table

    mean.tabulate = counted
    try:
        for k in range(settings):
            before = counts["tables"]
            if k % 3 == 2:
                name, off = compare_corner(draw)
                counts["corners"] += 1
                pairs[name.split(",")[0] + ", corner"] += 1
            else:
                setting = draw.setting()
                off, far, cancelled = compare(*setting)
                counts["far"] += far
                counts["cancelled"] += cancelled
                kinds = (type(part).__name__ for part in (setting[0].likelihood, setting[0].prior))
                name = " x ".join(kinds) + (", table" if counts["tables"] > before else "")
                pairs[name] += 1
            off = {key: value if math.isfinite(value) else math.inf for key, value in off.items()}
            if max(off.values()) > worst:
                worst, where = max(off.values()), f"seed {seed}, setting {k}: {name}, {off}"
            if progress and (k + 1) % 500 == 0:
                print(f"{k + 1} settings, {counts['tables']} tables, worst {worst:.2e}", flush=True)
    finally:
        mean.tabulate = tabulate
    return {**counts, "worst": worst, "where": where, "pairs": dict(pairs)}
