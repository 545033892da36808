"""Random search for a setting in which a loss differs from Theorem 1 in float64.

    python -m tests.losses.search [settings=3500] [seeds=3] [publish]

Two in three settings have many samples of one dimension, in float64, where tables are read: smooth
priors and spikes, gaps, equal labels; predictions on the labels, outside and very far away; tiny
and huge sigma. The others are corners in float32: labels far from zero, of low rank, in up to 64
dimensions; one scale per dimension; samples of weight zero; a queue; sampled atoms; uneven bins
with a power. Differences are relative to the largest gradient. Where likelihood and evidence
cancel, the rounding of their energies is no difference.

N: samples; D: label dimensions; K: atoms.
"""

import copy
import math
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn.utils.stateless import _reparametrize_module

from losses import BalancedLoss, Batch, Bins, Flat, Gaussian, GaussianMixture, Huber, Laplace
from losses.batches import samples
from losses.fast import table

D64 = torch.float64
EPS = torch.finfo(D64).eps
TOLERANCE = 1e-4
Given = tuple[Tensor, Tensor, Tensor | None]  # pred, target, weight
Setting = tuple[BalancedLoss, list[Given], Any]  # the arguments of `compare`


def log_p(likelihood: Any, y: Tensor, pred: Tensor, scale: Tensor) -> Tensor:
    """log p(y | pred), summed over the last dimension."""
    r = ((y - pred) / scale).abs()
    energy = {Gaussian: r * r / 2, Laplace: r}.get(type(likelihood))
    if energy is None:
        delta = likelihood.delta
        energy = torch.where(r < delta, r * r / 2, delta * (r - delta / 2))
    return -(energy + scale.log() + likelihood.log_z).sum(-1)


def log_evidence(
    likelihood: Any, prior: Any, x: Tensor, s: Tensor, y: Tensor, atoms: Any, own=None
):
    """The log-evidence (N,) of x (N, D) at the scale s, (), (D,) or (N, D), over atoms and their
    log-weights; own: where the label y is not among them.
    """
    if isinstance(prior, Flat) or getattr(prior, "power", 1) == 0:
        return log_p(likelihood, x, x, likelihood.raw).detach()
    if isinstance(prior, GaussianMixture) and isinstance(likelihood, Gaussian):
        w, mu, cov = (t.double() for t in (prior.weights, prior.means, prior.covariances))
        var = s.square().expand(x.shape[-1]) if s.ndim < 2 else s.square()[:, None]
        normal = MultivariateNormal(mu, cov + torch.diag_embed(var))
        return (w.log() + normal.log_prob(x[:, None])).logsumexp(-1)
    if isinstance(prior, GaussianMixture):
        with _reparametrize_module(likelihood, {likelihood.symbol: s}):
            return likelihood.log_evidence_mixture(x, prior)
    held = x if isinstance(likelihood, Gaussian) else x.clamp(atoms[0].amin(0), atoms[0].amax(0))
    each = log_p(likelihood, atoms[0], held[:, None], s if s.ndim < 2 else s[:, None])
    evidence = (atoms[1] + each).logsumexp(-1)
    likely = log_p(likelihood, y, held, s)
    return evidence if own is None else torch.where(own, evidence.logaddexp(likely), evidence)


def compare(loss: BalancedLoss, *batches: Given, atoms: Any = None) -> dict[str, float]:
    """Return the relative differences of value and gradients in the last batch; the others fill the
    queue. atoms: those of the prior and their log-weights, if it knows them only after a power.
    """
    likelihood: Any = loss.likelihood
    prior: Any = loss.prior
    for earlier in batches[:-1]:
        loss(*earlier)
    pred, target, weight = batches[-1]
    own, marked = None, samples(target, weight)
    if isinstance(prior, Batch):
        every = [marked, *(samples(y, w) for _, y, w in reversed(batches[:-1]))]
        every = [labels[~labels[:, 0].isnan()] for labels in every]
        labels = torch.cat([every[0], torch.cat([every[0][:0], *every[1:]])[: prior.queue]])
        if prior.max_atoms is not None:  # which ones were sampled is asked of the prior
            torch.manual_seed(0)
            chosen, log_w, own = copy.deepcopy(prior).atoms(marked)
            torch.manual_seed(0)
        atoms = labels.double(), torch.zeros(len(labels), dtype=D64)
        if own is not None:  # all labels, without weight, have the ends where evidence is held
            chosen = chosen[log_w == 0].double()
            log_w = torch.cat([torch.zeros(len(chosen), dtype=D64), atoms[1] - math.inf])
            atoms = torch.cat([chosen, atoms[0]]), log_w
    elif isinstance(prior, Bins) and atoms is None:
        atoms = prior.centers.double()[:, None], prior.weights.double().log()
    leaf = pred.detach().clone().requires_grad_()
    value = loss(leaf, target, weight)
    ours = torch.autograd.grad(value, [leaf, *loss.parameters()])

    x, s = (t.detach().double().requires_grad_() for t in (pred, likelihood.raw))
    y = target.double()
    share = torch.ones(len(x), dtype=D64) if weight is None else weight.double()
    share = share / share.sum() * likelihood.unit.item()
    likely = log_p(likelihood, y, x, s)
    evidence = log_evidence(likelihood, prior, x, s, y, atoms, own)
    rows = share * (loss.strength * evidence - likely)
    one_sign = (share * (2 * log_p(likelihood, y, y, s) - likely)).sum()  # energies - log scale
    terms = torch.autograd.grad(one_sign, [x, s], retain_graph=True)
    exact = torch.autograd.grad(rows.sum(), [x, s])
    energy = (likely.abs() + evidence.abs()).nan_to_num(0).detach()
    blur = EPS * energy.clamp(min=10) / TOLERANCE if pred.dtype == D64 else torch.tensor([1e-2])
    known = EPS * energy <= 1e-6  # float64 resolves the components' shares
    largest = exact[0].abs()[known].max() if known.any() else torch.tensor(0.0)
    if pred.dtype == D64:
        size = exact[0].abs().maximum(blur[:, None] * (terms[0].abs() + exact[0].abs()))
    else:
        size = blur * terms[0].abs().max()
    size = size.clamp(min=largest)
    total = exact[1].abs().max().maximum((blur.max() * terms[1].abs()).max())
    sizes = rows.abs().sum().maximum(share @ energy * blur.min())
    off = {"value": _relative(value - rows.sum(), sizes)}
    off["pred"] = _relative(ours[0] - exact[0], size)
    if len(ours) > 1:
        off["scale"] = _relative(ours[1] - exact[1], total)
    return off


def _relative(difference: Tensor, size: Tensor) -> float:
    off = torch.where(difference == 0, 0.0, difference.abs() / size).max().item()
    return off if math.isfinite(off) else math.inf


class Draw(np.random.Generator):
    """Random numbers of one seed."""

    def log(self, low: float, high: float) -> float:
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def one_of(self, *options: Any) -> Any:
        return options[self.integers(len(options))]

    def numbers(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.random(shape))

    def normals(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.standard_normal(shape))

    def some_of(self, values: Tensor, count: int) -> Tensor:
        return values[torch.from_numpy(self.integers(len(values), size=count))]


def learned(kind: type, scale: Any, delta: float = 1.0) -> Any:
    return Huber(scale, delta, True) if kind is Huber else kind(scale, True)


def centers(draw: Draw, count: int, width: float) -> Tensor:
    """Evenly, at random, in two clusters with a gap, on a spike, with one far away, or equal."""
    kind = draw.one_of(*["even", "random"] * 3, "gap", "spike", "spike", "far", "equal")
    c = width * draw.numbers(count)
    if kind == "even":
        c = torch.linspace(0, width, count, dtype=D64)
    elif kind == "gap":
        c = torch.where(c < width / 2, c, c + draw.log(0.1, 100) * width)
    elif kind == "spike":
        c = torch.where(draw.numbers(count) < 0.5, c, c[0] + 1e-4 * c)
    elif kind == "far":
        c[0] = draw.one_of(-1, 1) * width * draw.log(3, 1e5)
    elif kind == "equal":
        c = c.round()
    return c + draw.one_of(0.0, 0.0, draw.uniform(-100, 100), 2000.0)


def many_samples(draw: Draw) -> Setting:
    """Draw a setting of one dimension in float64."""
    kind = draw.one_of(*[Gaussian] * 18, Laplace, Huber)
    over = draw.one_of(*["bins", "bins", "mixture"] * 6, "batch", "flat")
    over = "bins" if kind is Huber and over == "mixture" else over
    rows = draw.one_of(60, *[4200] * 15, *[8200] * 5, 20_000) if kind is Gaussian else 4200
    if over == "batch":
        rows = draw.one_of(60, *[300] * 18, 4100 if kind is Gaussian else 300)
    count, width = draw.integers(2, 17), draw.log(0.1, 200)
    c, smooth = centers(draw, count, width), width / draw.log(0.5, 4)
    weights = draw.one_of(torch.ones(count, dtype=D64), draw.numbers(count) ** 3 + 1e-9)
    scale = max(draw.one_of(*[smooth] * 8, draw.log(1e-3, 1), draw.log(1, 1e3)), 1.1e-3)
    target = draw.some_of(c, rows)
    target = target + smooth * (draw.numbers(rows) - 0.5)
    where = draw.one_of("labels", "labels", "wide", "outliers", "on", "far", "equal")
    pred = target + draw.one_of(scale, smooth, width) * (draw.numbers(rows) * 2 - 1)
    if where == "wide":
        pred = c.min() + (c.max() - c.min()) * (3 * draw.numbers(rows) - 1)
    elif where == "outliers":
        some = draw.some_of(torch.arange(rows), draw.integers(1, 21))
        pred[some] = target[some] = draw.one_of(-1, 1) * draw.log(1, 1e6) * (1 + width)
    elif where == "on":
        pred = draw.some_of(c, rows)
    elif where == "far":
        pred = pred + draw.one_of(-1, 1) * draw.log(1, 1e3) * scale
    elif where == "equal":
        pred = pred[:1].expand(rows).clone()
    if over == "mixture":
        deviations = draw.one_of(smooth, smooth, width, scale) * (draw.numbers(count) * 2 + 0.2)
        deviations = torch.where(draw.numbers(count) < 0.02, 1e-3 * deviations, deviations)
        prior: Any = GaussianMixture(weights, c[:, None], deviations[:, None, None] ** 2)
    else:
        prior = {"bins": lambda: Bins(c, weights), "batch": Batch, "flat": Flat}[over]()
    likelihood = learned(kind, torch.tensor(scale, dtype=D64), draw.uniform(0.3, 3))
    loss = BalancedLoss(likelihood, prior, draw.one_of(1.0, 1.0, draw.uniform(0, 2)))
    weight = draw.one_of(None, None, draw.numbers(rows))
    return loss, [(pred[:, None], target[:, None], weight)], None


def corner(draw: Draw) -> Setting:
    """Draw a setting in float32, with a batch before the one that is compared."""
    kind, over = draw.one_of(Gaussian, Laplace, Huber), draw.one_of("batch", "bins", "mixture")
    kind = Gaussian if over == "mixture" else kind
    dims = 1 if over == "bins" else draw.one_of(1, 2, 3, 8, 24, 64)
    width, rank = draw.log(0.1, 100), int(draw.integers(1, dims + 1))
    offset = draw.one_of(0.0, 1.0, 1e3, 1e5) * width * draw.one_of(-1, 1)
    axes = width / rank**0.5 * draw.normals(rank, dims)
    least = 1e-2 if abs(offset) > 1e4 * width else 1e-3  # so that float32 resolves it
    scale = (width * draw.log(least, 2) * (0.5 + draw.numbers(draw.one_of(1, dims)))).float()
    scale = scale[0] if len(scale) == 1 < dims or draw.integers(2) * dims == 1 else scale
    batches: list[Given] = []
    for count in (draw.one_of(5, 40), draw.one_of(5, 40)):
        target = (offset + draw.normals(count, rank) @ axes).float()
        pred = target + draw.one_of(0.3, 1, 3) * scale * draw.normals(count, dims)
        weight = draw.numbers(count) * (draw.numbers(count) < draw.one_of(0.2, 0.7, 1.0))
        weight[:2] = 1.0
        batches.append((pred.float(), target, draw.one_of(None, weight.float())))
    every, atoms = torch.cat([y for _, y, _ in batches]).double(), None
    if over == "batch":
        prior: Any = Batch(draw.one_of(0, 3, 100), draw.one_of(None, 4))
    elif over == "bins":
        power = draw.one_of(0.0, 0.5, 1.0)
        cuts = torch.cat([torch.tensor([-0.1, 1.1], dtype=D64), draw.numbers(9)]).sort().values
        edges = every.min() + (every.max() - every.min()) * cuts
        prior = Bins.fit(every[:, 0].numpy(), edges.numpy(), power=power)
        counts, widths = torch.histogram(every[:, 0], edges).hist, edges.diff()
        log_w = ((counts / widths).log() * power + widths.log())[counts > 0]
        middle = ((edges[1:] + edges[:-1]) / 2)[counts > 0, None]
        atoms = middle, log_w - log_w.logsumexp(0)
    else:
        prior = GaussianMixture.fit(every, 2, seed=int(draw.integers(10)))
    loss = BalancedLoss(learned(kind, scale), prior)
    loss.likelihood.floor = 1e-9  # that of the bins has its own test
    return loss, batches, atoms


def search(settings: int, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the name of each setting and its differences."""
    draw = Draw(np.random.PCG64(seed))
    for k in range(settings):
        loss, batches, atoms = corner(draw) if k % 3 == 2 else many_samples(draw)
        with mock.patch.object(table._Read, "apply", wraps=table._Read.apply) as read:
            off = compare(loss, *batches, atoms=atoms)
        name = f"{type(loss.likelihood).__name__} x {type(loss.prior).__name__}"
        yield name + (", corner" if k % 3 == 2 else ", table" if read.called else ""), off


def main(settings: int = 3500, seeds: int = 3, publish: bool = False) -> None:
    from engine import RESULTS
    from engine.runs import records

    pairs, worst, where = Counter[str](), -1.0, ""
    for seed in range(seeds):
        for k, (name, off) in enumerate(search(settings, seed)):
            pairs[name] += 1
            if max(off.values()) > worst:
                worst, where = max(off.values()), f"seed {seed}, setting {k}: {name}, {off}"
    for name, count in sorted(pairs.items()):
        print(f"{count:6d}  {name}")
    print(f"{pairs.total()} settings. The largest difference is {worst:.2e} ({where}).")
    report = {"settings": pairs.total(), "worst": worst, "where": where, "pairs": dict(pairs)}
    report["meta"] = {**records.meta(), "tolerance": TOLERANCE, "seeds": list(range(seeds))}
    if publish:
        records.write(RESULTS / "search_losses.json", report)
    if not worst <= TOLERANCE:
        raise SystemExit(f"A loss differs by more than {TOLERANCE} of the largest gradient.")


if __name__ == "__main__":
    words = dict(word.split("=") for word in sys.argv[1:] if "=" in word)
    main(**{name: int(value) for name, value in words.items()}, publish="publish" in sys.argv)
