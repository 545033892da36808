"""Random corners of the losses in float32, compared with Theorem 1 in float64: see search.py.

Labels far from zero, of low rank and in up to 64 dimensions; one scale per dimension; samples of
weight zero; a queue; sampled atoms; uneven bins with a power. Atoms, weights and evidence are
computed here again; only which atoms were sampled at random is asked of the prior.

N: samples; D: label dimensions; K: atoms.
"""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from losses import BalancedLoss, Batch, Bins, Gaussian, GaussianMixture, Huber, Laplace

D64 = torch.float64
BLUR = 1e-2  # of the gradient of log p: what counts where it and the evidence cancel


def log_p(kind: str, y: Tensor, pred: Tensor, scale: Tensor) -> Tensor:
    """log p(y | pred) up to a constant, summed over the last dimension."""
    r = ((y - pred) / scale).abs()
    energy = {"Gaussian": r * r / 2, "Laplace": r, "Huber": torch.where(r < 1, r * r / 2, r - 0.5)}
    return -(energy[kind] + scale.log().expand_as(r)).sum(-1)


def over_atoms(kind: str, pred: Tensor, atoms: Tensor, log_w: Tensor, scale: Tensor) -> Tensor:
    x = pred if kind == "Gaussian" else pred.clamp(atoms.amin(0), atoms.amax(0))
    return (log_w + log_p(kind, atoms, x[:, None], scale)).logsumexp(-1)


def compare_corner(draw: Any) -> tuple[str, dict[str, float]]:
    """Draw a setting; return its name and the relative differences of its gradients."""
    kind, over = (
        draw.one_of("Gaussian", "Laplace", "Huber"),
        draw.one_of("batch", "bins", "mixture"),
    )
    kind = "Gaussian" if over == "mixture" else kind
    dims = 1 if over == "bins" else draw.one_of(1, 2, 3, 8, 24, 64)
    width, rank = draw.log(0.1, 100), draw.integer(1, dims)
    offset = draw.one_of(0.0, 1.0, 1e3, 1e5) * width * draw.one_of(-1, 1)
    axes = width / rank**0.5 * draw.normal(rank, dims)
    scale = width * draw.log(0.01, 2) * (0.5 + draw.numbers(draw.one_of(1, dims)))
    scale = (scale[0] if len(scale) == 1 and draw.integer(0, 1) * dims != 1 else scale).float()

    def sample(count: int) -> tuple[Tensor, Tensor, Tensor | None]:
        target = (offset + draw.normal(count, rank) @ axes).float()
        pred = target + draw.one_of(0.3, 1, 3) * scale * draw.normal(count, dims)
        weight = draw.numbers(count) * (draw.numbers(count) < draw.one_of(0.2, 0.7, 1.0))
        weight[:2] = 1.0
        return pred.float(), target, draw.one_of(None, weight.float())

    batches, name = [sample(draw.one_of(5, 40)) for _ in range(2)], over
    pred, target, weight = batches[1]
    labels = [y if w is None else y[w > 0] for _, y, w in batches]
    every = torch.cat([y for _, y, _ in batches]).double()
    own, flat, atoms, log_w = None, False, every, every[:, 0]
    if over == "batch":
        queue, most = draw.one_of(0, 3, 100), draw.one_of(None, 4)
        prior: Any = Batch(queue, most)
        atoms = torch.cat([labels[1], labels[0][:queue]]).double()
        log_w, name = torch.zeros(len(atoms), dtype=D64), f"batch, queue {queue}, max_atoms {most}"
    elif over == "bins":
        power, flat = (p := draw.one_of(0.0, 0.5, 1.0)), p == 0
        cuts = torch.cat([torch.tensor([-0.1, 1.1], dtype=D64), draw.numbers(9)]).sort().values
        edges = every.min() + (every.max() - every.min()) * cuts
        counts, widths = torch.histogram(every[:, 0], edges).hist, edges.diff()
        prior = Bins.fit(every[:, 0].numpy(), edges.numpy(), power=power)
        atoms, log_w = ((edges[1:] + edges[:-1]) / 2)[:, None], (counts / widths).log() * power
        atoms, log_w, name = atoms[counts > 0], (log_w + widths.log())[counts > 0], f"bins^{power}"
    else:
        prior = GaussianMixture.fit(every, 2, seed=draw.integer(0, 9))
    maker: Any = {"Gaussian": Gaussian, "Laplace": Laplace, "Huber": Huber}[kind]
    learn = {"learn_sigma" if kind == "Gaussian" else "learn_scale": True}
    likelihood: Any = maker(scale, **learn)
    loss = BalancedLoss(likelihood, prior)
    likelihood.floor = 1e-9  # that of the bins has its own test
    loss(*batches[0])
    seed = draw.integer(0, 1 << 30)
    torch.manual_seed(seed)
    if over == "batch" and prior.max_atoms is not None:
        marked = target if weight is None else target.where(weight[:, None] > 0, torch.nan)
        atoms, _, own = copy.deepcopy(prior).atoms(marked)  # labels may be equal: own by index
        atoms, log_w = atoms.double(), log_w[: len(atoms)]
        torch.manual_seed(seed)
    pred.requires_grad_()
    ours = torch.autograd.grad(loss(pred, target, weight), [pred, *loss.parameters()])

    x, s, y = pred.detach().double().requires_grad_(), likelihood.raw.double(), target.double()
    s = s.detach().requires_grad_()
    share = torch.ones(len(x), dtype=D64) if weight is None else weight.double()
    share = share / share.sum() * likelihood.unit.item()
    if flat:
        evidence = torch.zeros(len(x), dtype=D64)
    elif over == "mixture":
        w, mu, cov = (t.double() for t in (prior.weights, prior.means, prior.covariances))
        normal = MultivariateNormal(mu, cov + torch.diag((s**2).expand(dims)))
        evidence = (w.log() + normal.log_prob(x[:, None])).logsumexp(-1)
    else:
        evidence = over_atoms(kind, x, atoms, log_w, s)
    likely = log_p(kind, y, x, s)
    evidence = evidence if own is None else torch.where(own, evidence.logaddexp(likely), evidence)
    sizes = (share * (2 * log_p(kind, y, y, s) - likely)).sum()  # energies - log scale: one sign
    terms = torch.autograd.grad(sizes, [x, s], retain_graph=True)
    exact = torch.autograd.grad((share * (evidence - likely)).sum(), [x, s])
    off = {
        key: ((a - b).abs().max() / b.abs().max().maximum(BLUR * t.abs().max())).item()
        for key, a, b, t in zip(("pred", "scale"), ours, exact, terms, strict=True)
    }
    return f"{kind} x {name}, {dims} dimensions", off
