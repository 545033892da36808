"""Theorem 1 read backwards: the balanced prediction behind a plain one.

If p_bal(y | x) = N(y; m, sigma^2), a model trained with the plain loss learns

    T(m) = E_train[y | x] = m + sigma^2 d/dm log q(m),    q = p_train convolved with N(0, sigma^2),

or, trained with L1, the median of the same posterior. T' = posterior variance / sigma^2 > 0, and T
is the gradient of a convex function, so that T^-1 exists. It is the minimiser of

    |m - x|^2 / 2 sigma^2 + strength * log q(m),

which is convex for strength <= 1 and gives (1 - strength) m + strength T(m) = x.

N: samples; D: label dimensions; K: atoms or components; G: nodes of a curve.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ..batches import is_readable
from ..likelihoods import Gaussian, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from .labels import atoms, label_range, moments
from .settings import Point

Ends = tuple[float, float]
ANYWHERE: Ends = (-math.inf, math.inf)
STEPS, HALVINGS = 60, 30  # of Newton's method and of its line search
TOLERANCE = 1e-12  # of T(m) - x, in units of the largest |x|
CHUNK = 256  # samples or nodes at a time
FAR = 12.0  # standard deviations up to which a mixture's curve is tabulated


def plain(prior: Prior, likelihood: Location, point: Point, m: Tensor) -> Tensor:
    """T: balanced predictions (G,) -> the posterior's mean or median (G,), in one dimension."""
    if isinstance(prior, Flat):
        return m
    if isinstance(prior, GaussianMixture) and type(likelihood) is Gaussian and point == "mean":
        var = likelihood.value.to(m.dtype).square().reshape(1, 1)
        return posterior(prior, var, m[:, None])[1][:, 0]
    scale = float(likelihood.value)
    labels, weights = atoms(prior, scale)
    found = []
    for part in m.split(CHUNK):
        logits = weights.log() - likelihood.energy((part[:, None] - labels) / scale)
        mass = logits.softmax(-1)  # (G, K)
        found.append(mass @ labels if point == "mean" else _median(mass, labels))
    return torch.cat(found)


def _median(mass: Tensor, labels: Tensor) -> Tensor:
    """The atoms stand for the cells around them, in which the mass is even."""
    middle = (labels[1:] + labels[:-1]) / 2
    edges = torch.cat([2 * labels[:1] - middle[:1], middle, 2 * labels[-1:] - middle[-1:]])
    above = mass.cumsum(-1)
    k = (above < 0.5).sum(-1, keepdim=True).clamp(max=len(labels) - 1)
    inside = mass.gather(-1, k)
    part = ((0.5 - (above.gather(-1, k) - inside)) / inside).clamp(0, 1)
    return (edges[k] + part * (edges[k + 1] - edges[k]))[:, 0]


def curve(
    prior: Prior, likelihood: Location, point: Point, strength: float, ends: Ends, nodes: int
) -> tuple[Tensor, Tensor]:
    """Tabulate T between the ends: plain (G,) and balanced predictions (G,), both increasing.

    A mixture without ends is continued by straight lines, as its T is.
    """
    if isinstance(prior, Bins):
        own = label_range(prior)
        low, high = (e if math.isfinite(e) else o for e, o in zip(ends, own, strict=True))
        ends = (low, high)
    low, high = ends
    if isinstance(prior, GaussianMixture):
        means, deviations = moments(prior)
        reach = FAR * (deviations.double().square() + likelihood.value.double().square()).sqrt()
        low = max(low, float((means - reach).min()))
        high = min(high, float((means + reach).max()))
    m = torch.linspace(low, high, nodes, dtype=torch.float64)
    x = (1 - strength) * m + strength * plain(prior, likelihood, point, m)
    x = x.cummax(0).values
    rising = torch.cat([x.diff() > 1e-14 * max(abs(low), abs(high), 1e-300), torch.tensor([True])])
    x, m = x[rising], m[rising]
    if len(x) < 2:
        raise ValueError(
            f"All labels of the prior lie at {low:g}: there is nothing to balance. Give the "
            "labels of the training set."
        )
    if ends[0] == -math.inf:
        x, m = _line(x, m, -1)
    return _line(x, m, 1) if ends[1] == math.inf else (x, m)


def _line(x: Tensor, m: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Continue the curve beyond its first (-1) or last (1) node, far enough for any label."""
    end, near = (0, 1) if side < 0 else (-1, -2)
    slope = (m[end] - m[near]) / (x[end] - x[near])
    far = side * 1e3 * (x[-1] - x[0])
    joined = ([x[end] + far], x), ([m[end] + slope * far], m)
    new = [torch.cat([torch.stack(a), b] if side < 0 else [b, torch.stack(a)]) for a, b in joined]
    return new[0], new[1]


def posterior(prior: Any, var: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log q(m) up to a constant (N,), posterior mean (N, D) and covariance (N, D, D), for noise of
    variance (1, D) or (N, D).
    """
    if isinstance(prior, Bins):
        labels, weights = (t.to(m) for t in atoms(prior, float(var.detach().min().sqrt())))
        logits = weights.log() - (m - labels).square() / (2 * var)
        mass = logits.softmax(-1)
        mean = mass @ labels[:, None]
        spread = (mass * (labels - mean).square()).sum(-1)
        return logits.logsumexp(-1), mean, spread[:, None, None]
    given = (prior.weights, prior.means, prior.covariances)
    weights, means, covariances = (tensor.to(m) for tensor in given)
    shared = len(var) == 1
    noisy = covariances + (torch.diag(var[0]) if shared else torch.diag_embed(var)[:, None])
    factor = torch.linalg.cholesky_ex(noisy).L  # (K, D, D) or (N, K, D, D)
    precision = torch.cholesky_inverse(factor)
    r = m[:, None] - means  # (N, K, D)
    pull = -torch.einsum("kde,nke->nkd" if shared else "nkde,nke->nkd", precision, r)
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    logits = weights.log() + ((pull * r).sum(-1) - log_det) / 2
    mass = logits.softmax(-1)
    slope = torch.einsum("nk,nkd->nd", mass, pull)
    bend = (mass[..., None] * pull).mT @ pull - slope[:, :, None] * slope[:, None]
    bend = bend - torch.einsum("nk,kde->nde" if shared else "nk,nkde->nde", mass, precision)
    covariance = torch.diag_embed(var) + var[:, :, None] * bend * var[:, None]
    return logits.logsumexp(-1), m + var * slope, covariance


def invert(prior: Prior, var: Tensor, strength: float, x: Tensor, ends: Ends) -> tuple[Tensor, int]:
    """Solve (1 - strength) m + strength T(m) = x (N, D) by Newton's method with line search;
    return m, within the ends, and the number of steps. Differentiable in x.
    """

    def step(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The value that is minimised (N,), the residual x - T (N, D), Newton's step (N, D)."""
        log_q, mean, covariance = posterior(prior, var, m)
        rest = x - (1 - strength) * m - strength * mean
        matrix = (1 - strength) * torch.diag_embed(var) + strength * covariance
        size = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
        eye = torch.eye(m.shape[-1], dtype=m.dtype, device=m.device)
        factor = torch.linalg.cholesky_ex(matrix + (1e-14 * size + 1e-300) * eye).L
        move = var * torch.cholesky_solve(rest[..., None], factor)[..., 0]
        value = ((m - x).square() / var).sum(-1) / 2 + strength * log_q
        return value, rest, move.nan_to_num(0.0, 0.0, 0.0)

    with torch.no_grad():
        m, taken = x.clamp(*ends), 0
        value, _, move = step(m)
        # Without values to read (torch.compile, torch.export, a GPU) the loops have fixed lengths.
        steps, halvings = (STEPS, HALVINGS) if is_readable(x) else (STEPS // 6, 2)
        while taken < steps:
            taken += 1
            share = torch.ones_like(value)
            trial, found = m, (value, value, move)
            for _ in range(halvings):
                trial = (m + share[:, None] * move).clamp(*ends)
                found = step(trial)
                worse = found[0] > value + 1e-9 * (1 + value.abs())  # rounding, near the minimum
                if is_readable(worse) and not worse.any():
                    break
                share = torch.where(worse, share / 2, share)
            small = TOLERANCE * x.abs().amax()
            done = (((trial - m).abs() <= small) | (found[1].abs() <= small)).all()
            m, (value, _, move) = trial, found
            if is_readable(done) and done:
                break
    if x.requires_grad:
        inside = (m > ends[0]) & (m < ends[1])
        return m + torch.where(inside, step(m)[2], 0.0), taken
    return m, taken


def solve(
    prior: Prior, sigma: Tensor, strength: float, x: Tensor, ends: Ends = ANYWHERE
) -> tuple[Tensor, int]:
    """`invert` in chunks, for noise (), (D,) or, one per sample, (N, 1) or (N, D)."""
    var = sigma.to(x).square()
    var = var.expand_as(x) if var.ndim == 2 else var.expand(1, x.shape[-1])
    of_chunks = var.split(CHUNK) if len(var) == len(x) else [var] * math.ceil(len(x) / CHUNK)
    chunks = zip(x.split(CHUNK), of_chunks, strict=True)
    found = [invert(prior, own, strength, part, ends) for part, own in chunks]
    return torch.cat([m for m, _ in found]), max(steps for _, steps in found)
