"""Theorem 1 read backwards: the balanced prediction behind a plain one.

If p_bal(y | x) = N(y; m, sigma^2), a model trained with the plain loss learns

    T(m) = E_train[y | x] = m + sigma^2 d/dm log q(m),    q = p_train convolved with N(0, sigma^2),

or, trained with L1, the median of the same posterior. T' = posterior variance / sigma^2 > 0, and T
is the gradient of a convex function, so that T^-1 exists. It is the minimiser of

    |m - x|^2 / 2 sigma^2 + strength * log q(m),

which is convex for strength <= 1 and gives (1 - strength) m + strength T(m) = x.

In one dimension `curve` tabulates T, and T^-1 is a lookup; `solve` is Newton's method for several
dimensions and for one sigma per sample.

N: samples; D: label dimensions; K: atoms or components; G: nodes of a curve.
"""

import math
from itertools import repeat
from typing import Any, Literal

import torch
from torch import Tensor

from ..batches import is_readable
from ..categorical import quantile
from ..likelihoods import Gaussian, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from ..robust import Huber, Laplace
from .labels import atoms, cell_edges, cells, spaced

NOISE: dict[str, type[Location]] = {"gaussian": Gaussian, "laplace": Laplace, "huber": Huber}
Point = Literal["mean", "median"]
Ends = tuple[float, float]
Curve = tuple[Tensor, Tensor]  # plain and balanced predictions (G,), both increasing
ANYWHERE: Ends = (-math.inf, math.inf)
NODES = 4096  # of a curve
STEPS, FIXED = 400, 25  # of Newton's method with line search; where nothing can be read
TOLERANCE = 1e-12  # of T(m) - x, in units of the largest |x|
ALL_EQUAL = (
    "All labels of the prior lie at {low:g}: there is nothing to balance. Give the labels of the "
    "training set."
)
CHUNK = 256  # samples or nodes at a time


def noise(kind: str, sigma: float) -> Location:
    """Return p_bal's noise."""
    likelihood: Any = NOISE[kind]
    return likelihood(torch.tensor(sigma, dtype=torch.float64), floor=1e-150)


def plain(prior: Prior, likelihood: Location, point: Point, m: Tensor) -> Tensor:
    """T: balanced predictions (G,) -> the posterior's mean or median (G,), in one dimension."""
    if isinstance(prior, Flat):
        return m
    if isinstance(prior, GaussianMixture) and type(likelihood) is Gaussian and point == "mean":
        var = likelihood.value.to(m.dtype).square().reshape(1, 1)
        return posterior(components(prior, var), var, m[:, None])[1][:, 0]
    scale = float(likelihood.value)
    labels, weights = atoms(prior, scale)
    edges, found = cell_edges(labels), []  # of cells in which the mass is even
    for part in m.split(CHUNK):
        logits = weights.log() - likelihood.energy((part[:, None] - labels) / scale)
        mass = logits.softmax(-1)  # (G, K)
        found.append(mass @ labels if point == "mean" else quantile(edges, mass, 0.5)[:, 0])
    return torch.cat(found)


def curve(
    prior: Any, likelihood: Location, point: Point, strength: float, ends: Ends, nodes: int
) -> Curve:
    """Tabulate T between the ends."""
    low, high = ends
    m = torch.linspace(low, high, nodes, dtype=torch.float64)
    if not isinstance(prior, Flat):
        labels, weights = atoms(prior, math.inf) if isinstance(prior, Bins) else cells(prior)
        own = labels.cpu().numpy(), weights.cpu().numpy()
        m = torch.from_numpy(spaced(*own, ends, nodes, nodes // 4))
    x = (1 - strength) * m + strength * plain(prior, likelihood, point, m)
    x = x.cummax(0).values
    rising = torch.cat([x.diff() > 1e-14 * max(abs(low), abs(high), 1e-300), torch.tensor([True])])
    if rising.sum() < 2:
        raise ValueError(ALL_EQUAL.format(low=low))
    return x[rising], m[rising]


def components(prior: Any, var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-weights (n, K), means (1, K, D) and precisions (n, K, D, D) of a mixture plus noise of
    variance (n, D); n is 1 or N. The log-weights include the normalisers.
    """
    given = (prior.weights, prior.means, prior.covariances)
    weights, means, covariances = (tensor.to(var) for tensor in given)
    factor = torch.linalg.cholesky_ex(covariances + torch.diag_embed(var)[:, None]).L
    log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return weights.log() - log_det, means[None], torch.cholesky_inverse(factor)


def posterior(given: tuple[Tensor, ...], var: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log q(m) up to a constant (N,), posterior mean (N, D) and covariance (N, D, D), for noise of
    variance (1, D) or (N, D). given: `components` of a mixture, or `atoms`, (1, K) each.
    """
    if len(given) == 2:
        labels, weights = (t.to(m) for t in given)
        logits = weights.log() - (m - labels).square() / (2 * var)
        mass = logits.softmax(-1)
        mean = mass @ labels.mT
        spread = (mass * (labels - mean).square()).sum(-1)
        return logits.logsumexp(-1), mean, spread[:, None, None]
    log_weights, means, precision = given
    r = m[:, None] - means  # (N, K, D)
    pull = -torch.einsum("nkde,nke->nkd", precision, r)  # einsum does not expand an axis of 1
    logits = log_weights + (pull * r).sum(-1) / 2
    mass = logits.softmax(-1)  # (N, K)
    pulled = mass[..., None] * pull
    slope = pulled.sum(1)
    bend = pulled.mT @ (pull - slope[:, None]) - torch.einsum("nk,nkde->nde", mass, precision)
    covariance = torch.diag_embed(var) + var[:, :, None] * bend * var[:, None]
    return logits.logsumexp(-1), m + var * slope, covariance


def solve(prior: Prior, sigma: Tensor, strength: float, x: Tensor, ends: Ends = ANYWHERE) -> Tensor:
    """Solve (1 - strength) m + strength T(m) = x (N, D) for m within the ends, by Newton's method
    with line search; differentiable in x. sigma: (), (D,) or, one per sample, (N, 1) or (N, D).
    """
    if len(x) > CHUNK and is_readable(x):
        own = sigma.split(CHUNK) if sigma.ndim == 2 and len(sigma) > 1 else repeat(sigma)
        parts = zip(own, x.split(CHUNK), strict=False)
        return torch.cat([solve(prior, s, strength, part, ends) for s, part in parts])
    var = sigma.to(x).square()
    var = var.expand_as(x) if var.ndim == 2 else var.expand(1, x.shape[-1])
    if isinstance(prior, Bins):
        given = [t[None] for t in atoms(prior, float(var.detach().min().sqrt()))]
    else:
        given = components(prior, var)

    def step(m: Tensor, some: Any = slice(None)):  # torch 2.6 compiles no tuple[...] here
        """Of some samples: the value that is minimised (n,), the residual x - T (n, D) and Newton's
        step (n, D).
        """
        at, (noise, *density) = x[some], (t if len(t) == 1 else t[some] for t in (var, *given))
        log_q, mean, covariance = posterior(tuple(density), noise, m)
        rest = at - (1 - strength) * m - strength * mean
        matrix = (1 - strength) * torch.diag_embed(noise) + strength * covariance
        size = matrix.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
        ridge = torch.diag_embed((1e-14 * size + 1e-300).expand_as(m))
        factor = torch.linalg.cholesky_ex(matrix + ridge).L
        move = noise * torch.cholesky_solve(rest[..., None], factor)[..., 0]
        value = ((m - at).square() / noise).sum(-1) / 2 + strength * log_q
        return value, rest, move.nan_to_num(0.0, 0.0, 0.0)

    # Without values to read (torch.compile, torch.export, a GPU) the loop has a fixed length, and
    # samples stay in it after they have converged.
    readable = is_readable(x)
    with torch.no_grad():
        m, some = x.clamp(*ends), torch.arange(len(x), device=x.device)
        value, rest, move = step(m)
        share = torch.ones_like(value)
        small = TOLERANCE * x.abs().amax()
        for _ in range(STEPS if readable else FIXED):
            start = m[some]
            trial = (start + share[:, None] * move).clamp(*ends)
            found = step(trial, some)
            better = found[0] <= value + 1e-9 * (1 + value.abs())  # rounding, near the minimum
            still = ((trial - start).abs() <= small).all(-1)
            share = torch.where(better, (2 * share).clamp(max=1), share / 2)
            now, rest, move = (
                torch.where(better[:, None], new, old)
                for new, old in ((trial, start), (found[1], rest), (found[2], move))
            )
            value, m = torch.where(better, found[0], value), m.index_copy(0, some, now)
            if readable:
                open_ = ~(still | (rest.abs() <= small).all(-1))
                if not open_.any():
                    break
                some, value, rest, move, share = (
                    t[open_] for t in (some, value, rest, move, share)
                )
    if not x.requires_grad:
        return m
    inside = (m > ends[0]) & (m < ends[1])
    return m + torch.where(inside, step(m)[2], 0.0)
