"""Faster rows of very many samples, and bounded memory for large batches.

    Gaussian, one dimension    the evidence is read from a table (table.py)
    Gaussian, Laplace, Huber   the definition, a chunk of samples at a time
    Gaussian                   many runs under vmap: gradients by formula

For components N(c_k, v_k) with weights w_k (v_k = 0 for single labels), r_k = x - c_k and shares
p_k, the log-evidence f = log sum_k w_k N(x; c_k, v_k + sigma^2) + D log sigma has the gradients

    -sigma^2 df/dx  = sum_k p_k r_k part_k,    part_k = sigma^2 / (v_k + sigma^2)
    sigma df/dsigma = sum_k p_k [ |r_k part_k|^2 / sigma^2 + D - D part_k ]

In several dimensions `gradients` supports only single labels. `BalancedLoss.rows` is the tests'
oracle of all.

Likelihood and prior are matched by their exact types, because a subclass may redefine anything.
torch.func, forward mode and compiled graphs use the definition.

N: samples; D: label dimensions; K: components.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.utils.stateless import _reparametrize_module

from ..batches import double, is_readable, is_transformed, samples
from ..likelihoods import Gaussian, Likelihood
from ..mixture import GaussianMixture
from ..priors import Batch, Bins, Prior
from ..robust import Huber, Laplace
from .table import in_chunks, table_rows

if TYPE_CHECKING:
    from ..balanced import BalancedLoss

NEAR = 32.0  # squared distances, in sigma^2, whose float32 rounding does not change a gradient


def fast_rows(
    loss: "BalancedLoss", pred: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor | None:
    """`loss.rows` of pred (N, W), target (N, D) and weight (N,), or None if it is fast enough."""
    likelihood: Any = loss.likelihood
    prior: Any = loss.prior
    if type(likelihood) not in (Gaussian, Laplace, Huber) or is_transformed():
        return None
    if type(prior) not in (Bins, Batch, GaussianMixture) or forward_ad._current_level >= 0:
        return None
    labels = target if weight is None else samples(target, weight)
    if not _has_table(loss, pred, weight):
        return loss.rows(pred, target, weight, Chunked(likelihood))  # pyright: ignore
    if type(prior) is GaussianMixture:
        prior.check(target)
        weights, means, covariances = prior.parameters_for(pred)
        components = means[:, 0], covariances[:, 0, 0], weights.log()
    else:
        atoms, log_w, *_ = prior.atoms(labels)
        components = atoms[:, 0], torch.zeros_like(log_w), log_w
    sigma = likelihood.scale_for(pred).reshape(())
    columns = pred.squeeze(-1), target.squeeze(-1)
    rows = table_rows(*columns, sigma, torch.stack(components), loss.strength)
    if loss.strength != 1:  # the normaliser does not cancel
        rows = rows + (1 - loss.strength) * likelihood.log_norm(pred)
    return rows - loss.strength * prior.log_prob(target) if loss.full_nll else rows


def _has_table(loss: "BalancedLoss", pred: Tensor, weight: Tensor | None) -> bool:
    prior: Any = loss.prior
    if type(loss.likelihood) is not Gaussian or pred.shape[-1] > 1 or not is_readable(pred):
        return False
    if getattr(prior, "max_atoms", None) is not None or getattr(prior, "power", 1) == 0:
        return False
    return weight is None or bool((weight > 0).sum() > 1)  # a batch of one label is no prior


class Chunked:
    """A likelihood whose evidence is computed a chunk of samples at a time."""

    def __init__(self, likelihood: Any):
        self.likelihood = likelihood

    def __getattr__(self, name: str) -> Any:
        return getattr(self.likelihood, name)

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, *others: Any) -> Tensor:
        return self.in_chunks("log_evidence_atoms", len(atoms), pred, atoms, others[0])

    log_evidence_bins = log_evidence_atoms

    def log_evidence_mixture(self, pred: Tensor, mixture: GaussianMixture) -> Tensor:
        return self.in_chunks("log_evidence_mixture", len(mixture.weights), pred, mixture)

    def in_chunks(self, name: str, components: int, pred: Tensor, *given: Any) -> Tensor:
        likelihood = self.likelihood

        def chunk(x: Tensor, scale: Tensor, *given: Any) -> Tensor:
            """Recomputed in the backward pass, when `functional_call` has restored the scale."""
            with _reparametrize_module(likelihood, {likelihood.symbol: scale}):
                return getattr(likelihood, name)(x, *given)

        return in_chunks(chunk, components, (pred,), likelihood.raw, *given)


def has_gradients(loss: Any) -> bool:
    """Return whether `gradients` supports the loss."""
    if type(getattr(loss, "likelihood", None)) is not Gaussian or loss.likelihood.raw.ndim:
        return False
    prior = loss.prior
    known = {
        Batch: lambda: prior.max_atoms is None,
        Bins: lambda: prior.power != 0,
        GaussianMixture: lambda: prior.means.shape[-1] == 1,
    }.get(type(prior), lambda: False)()
    return known and not loss.full_nll and loss.reduction == "mean"


def are_near(labels: Tensor, sigma: Tensor) -> bool:
    """Return whether the labels (R, N, D) of R runs are so few sigma (R,) from their mean that
    float32 products lose no digits of the gradients.
    """
    reach = (labels - labels.mean(1, keepdim=True)).square().sum(-1).amax(1)
    return bool((reach <= NEAR * labels.shape[-1] * sigma**2).all())


def gradients(
    loss: Any, pred: Tensor, target: Tensor, near: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the gradients of the loss to pred (N, D) and to its parameters by name.

    `near`: the result of `are_near` for the target, which vmap hides.
    """
    gaussian, prior, dims = loss.likelihood, loss.prior, pred.shape[-1]
    sigma = gaussian.raw.detach().to(pred.dtype).clamp(min=gaussian.floor)
    r, learned = (pred - target) / sigma, gaussian.learned
    if isinstance(prior, GaussianMixture):
        c, v, weights = prior.means, prior.covariances[:, 0].to(pred.dtype), prior.weights
        v, log_w = v / sigma**2, weights.to(pred.dtype).log()
    else:
        (c, log_w, *_), v = prior.atoms(target), None
    log_w = log_w.to(pred.dtype)
    middle = double(c).mean(0)  # centred before the division: labels may be far from zero
    x, c = ((double(points) - middle) / double(sigma) for points in (pred, c))
    if v is None and (near or dims > 1):
        given = (x.to(pred.dtype), c.to(pred.dtype)) if near else (x, c)
        mean, *slope = (t.to(pred.dtype) for t in _points(*given, log_w, learned))
    else:
        mean, *slope = _line(x[:, 0].to(pred.dtype), c.to(pred.dtype), v, log_w, learned)
        mean = mean[:, None]
    to_pred = (r - loss.strength * mean) * (2 * sigma / len(pred))
    if not learned:
        return to_pred, {}
    to_sigma = (loss.strength * slope[0] - r.square().sum(-1)).mean() + (1 - loss.strength) * dims
    return to_pred, {"likelihood.sigma": 2 * sigma * to_sigma}


def _line(x: Tensor, c: Tensor, v: Tensor | None, log_w: Tensor, learned: bool) -> list[Tensor]:
    """-sigma^2 df/dx and, if sigma is learned, sigma df/dsigma, (N,) each, of x (N,) in one
    dimension, for components c, v (K, 1), log_w (K,), in units of sigma.
    """
    r, log_w = x - c, log_w[:, None]  # (K, N)
    part = None if v is None else 1 / (v + 1)
    pull = r if part is None else r * part
    log_w = log_w if part is None else log_w + part.log() / 2
    logits = torch.addcmul(log_w, r, pull, value=-0.5)
    share = logits.sub_(logits.amax(0)).exp_()  # in place: at this size memory is time
    total = share.sum(0)
    slopes = []
    if learned:
        slope = (pull * pull).mul_(share).sum(0)
        slope = slope if part is None else slope + ((1 - part) * share).sum(0)
        slopes = [slope / total]
    return [pull.mul_(share).sum(0) / total, *slopes]


def _points(x: Tensor, c: Tensor, log_w: Tensor, learned: bool) -> list[Tensor]:
    """-sigma^2 df/dx (N, D) and, if sigma is learned, sigma df/dsigma (N,) of single labels.

    |x - c|^2 = |x|^2 + |c|^2 - 2 x.c is one matrix product, in float64 unless the labels are near.
    """
    square = c * c
    bias = (log_w.to(c) - square.sum(-1) / 2)[:, None]
    # a column of ones next to x adds the bias in the product: one pass less over (K, N)
    logits = torch.cat([c, bias], -1) @ torch.cat([x, torch.ones_like(x[:, :1])], -1).mT
    share = logits.sub_(logits.amax(0)).exp_()
    columns = [torch.ones_like(bias), c, square] if learned else [torch.ones_like(bias), c]
    sums = torch.cat(columns, -1).mT @ share  # (1 + D or 1 + 2 D, N)
    averages = (sums[1:] / sums[0]).mT
    mean = averages[:, : x.shape[-1]]
    slope = (averages[:, x.shape[-1] :] + x * (x - 2 * mean)).sum(-1) if learned else mean
    return [x - mean, slope]


def log_evidence_slopes(
    likelihood: Likelihood, prior: Prior, pred: Tensor
) -> tuple[Tensor, Tensor]:
    """(N, D) -> gradient (N, D) and Hessian (N, D, D) of the log-evidence of each sample."""
    firsts, seconds = [], []
    for part in pred.detach().split(4096):  # torch.func.grad would import torch._dynamo, 2 s of CPU
        with torch.enable_grad():
            x = part.clone().requires_grad_()
            value = prior.log_evidence(likelihood, x, part).sum() + 0 * (x * x).sum()  # has a graph
            (first,) = torch.autograd.grad(value, x, create_graph=True)
            columns = first.sum(0).unbind()
            rows = [torch.autograd.grad(sums, x, retain_graph=True)[0] for sums in columns]
        firsts.append(first.detach())
        seconds.append(torch.stack(rows, 1))
    return torch.cat(firsts), torch.cat(seconds)
