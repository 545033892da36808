"""Faster ways to the same loss, only where they pay, and bounded memory for large batches.

    Gaussian x Bins, Batch, GaussianMixture   very many samples in one dimension: a table (table.py)
    Laplace x Bins, Batch                     very many samples in one dimension: running sums
    Gaussian, Laplace, Huber                  many samples: the definition, a chunk at a time
    Gaussian                                  many runs under vmap: gradients by formula

Likelihood and prior are matched by their exact types, because a subclass may redefine anything.
torch.func, gradients to a prior or to weights, and other tensor types use the definition.

N: samples; D: label dimensions; K: components.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils.checkpoint import checkpoint

from ..batches import is_readable, is_transformed, samples
from ..likelihoods import Gaussian
from ..mixture import GaussianMixture
from ..priors import Batch, Bins
from ..robust import Huber, Laplace
from .gradients import are_near, gradients, has_gradients
from .mean import FEW, table_mean

if TYPE_CHECKING:
    from ..balanced import BalancedLoss

__all__ = ["are_near", "gradients", "has_gradients", "rows_in_chunks", "table_loss"]
NUMBERS = 1 << 22  # samples x components x dimensions that are computed together
NO_WEIGHT = -1e30  # log of weight zero: -inf has no second derivative


def table_loss(
    loss: "BalancedLoss", pred: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor | None:
    """The mean or the sum of the loss of pred, target (N, 1), weight (N,), from a table. Returns
    None where that does not apply.
    """
    gaussian = type(loss.likelihood) is Gaussian and _is_known(loss)
    if not gaussian or loss.reduction == "none" or not _suits_table(loss, pred, target, weight):
        return None
    mean = _from_table(loss, pred, target, weight)
    if loss.reduction == "mean":
        return mean
    return mean * (len(pred) if weight is None else weight.sum())


def rows_in_chunks(
    loss: "BalancedLoss", pred: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor | None:
    """`loss.rows` of large batches in bounded memory, (N,). Returns None for other batches."""
    if not _is_known(loss) or torch.compiler.is_compiling():
        return None
    likelihood: Any = loss.likelihood
    prior: Any = loss.prior
    count = len(pred) if type(prior) is Batch else len(prior.weights)
    few = len(pred) <= FEW or type(likelihood) is not Laplace
    if few and pred.numel() * count <= NUMBERS:
        return None
    labels = target if weight is None else samples(target, weight)
    chunked: Any = _Chunked(likelihood)
    evidence = prior.log_evidence(chunked, pred, labels)
    if loss.full_nll:
        evidence = evidence - prior.log_prob(target)
    return loss.strength * evidence - likelihood.log_prob(target, pred)


def _is_known(loss: "BalancedLoss") -> bool:
    """Return whether likelihood, prior and the kind of derivative are those of the fast paths."""
    likelihood: Any = loss.likelihood
    if type(likelihood) not in (Gaussian, Laplace, Huber) or likelihood.attempts:
        return False
    if type(loss.prior) not in (Bins, Batch, GaussianMixture) or is_transformed():
        return False
    return torch.autograd.forward_ad._current_level < 0


def _suits_table(loss: "BalancedLoss", pred: Tensor, target: Tensor, weight: Tensor | None) -> bool:
    raw: Any = loss.likelihood.raw
    if len(pred) <= FEW or pred.shape[-1] > 1 or pred.device.type != "cpu":
        return False
    if weight is not None and is_readable(weight) and (weight > 0).sum() < 2:  # a batch of one
        return False
    prior: Any = loss.prior
    if getattr(prior, "max_atoms", None) is not None or getattr(prior, "power", 1) == 0:
        return False
    if any(t is not None and t.requires_grad for t in (weight, *loss.prior.buffers())):
        return False
    plain = all(type(tensor) in (Tensor, nn.Parameter) for tensor in (pred, target, raw))
    return plain or torch.compiler.is_compiling()


def _from_table(
    loss: "BalancedLoss", pred: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor:
    gaussian: Any = loss.likelihood
    prior: Any = loss.prior
    if type(prior) is GaussianMixture:
        prior.check(target)
        tensors = prior.means[:, 0], prior.covariances[:, 0, 0], prior.weights.log()
    else:
        labels = target if type(prior) is Bins else samples(target, weight)
        atoms, log_w, *_ = prior.atoms(labels)
        tensors = atoms[:, 0], torch.zeros_like(log_w), log_w
    dtype = target.dtype if getattr(prior, "single", True) else torch.float64
    components = torch.stack([t.to(dtype) for t in tensors])
    settings = float(loss.strength), gaussian.floor, gaussian.raw.requires_grad
    mean = table_mean(pred, gaussian.raw, target, weight, components, *settings)
    if not loss.full_nll:
        return mean
    log_p = prior.log_prob(target)
    log_p = log_p.mean() if weight is None else weight @ log_p / weight.sum()
    return mean / gaussian.unit - loss.strength * log_p


class _Chunked:
    """A likelihood whose evidence is computed by running sums, or a chunk of samples at a time."""

    def __init__(self, likelihood: Any):
        self.likelihood = likelihood

    def __getattr__(self, name: str) -> Any:
        return getattr(self.likelihood, name)

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, *others: Any) -> Tensor:
        if type(self.likelihood) is Laplace and pred.shape[-1] == 1:
            return _laplace(self.likelihood, pred, atoms, others[0])
        return _in_chunks(self.likelihood, "atoms", pred, len(atoms), atoms, others[0])

    log_evidence_bins = log_evidence_atoms

    def log_evidence_mixture(self, pred: Tensor, mixture: GaussianMixture) -> Tensor:
        return _in_chunks(self.likelihood, "mixture", pred, len(mixture.weights), mixture)


def _in_chunks(likelihood: Any, over: str, pred: Tensor, components: int, *given: Any) -> Tensor:
    """`log_evidence_<over>`, (N, D) -> (N,), chunk by chunk; recomputed in the backward pass."""

    def chunk(x: Tensor, scale: Tensor, *given: Any) -> Tensor:
        with _reparametrize_module(likelihood, {likelihood.symbol: scale}):  # that of the forward
            return getattr(likelihood, f"log_evidence_{over}")(x, *given)

    size = max(1, NUMBERS // (components * pred.shape[-1]))
    given = (likelihood.raw, *given)
    chunks = [checkpoint(chunk, x, *given, use_reentrant=False) for x in pred.split(size)]
    return torch.cat(chunks)  # pyright: ignore[reportArgumentType]


def _laplace(laplace: Laplace, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
    """`laplace.log_evidence_atoms` in one dimension: |x - a| splits at x into two running sums.

    With the atoms sorted and x between a_i and a_(i+1),
        sum_k w_k e^-|x - a_k|/b = e^-(x - a_i)/b L_i + e^-(a_(i+1) - x)/b R_(i+1)
    where L_i and R_i sum over the atoms up to and from a_i: exact, kinks included.
    """
    order, middle = atoms[:, 0].argsort(), atoms.double().mean()
    a = atoms[order, 0].double() - middle  # centred: a / b has few digits for labels far from zero
    b, log_w = laplace.scale_for(a[:, None]), log_weights[order].double().clamp(min=NO_WEIGHT)
    left = torch.logcumsumexp(log_w + a / b, 0) - a / b
    right = torch.logcumsumexp((log_w - a / b).flip(0), 0).flip(0) + a / b
    none = left.new_full((1,), NO_WEIGHT)
    left, right = (torch.cat(t).to(pred.dtype) for t in ([none, left], [right, none]))
    x = laplace.held(pred[:, 0].double() - middle, a[0], a[-1]).to(pred.dtype)
    b, a = laplace.scale_for(pred), a.to(pred.dtype)

    def split(side: str) -> Tensor:
        """An atom at x itself belongs to one side."""
        above = torch.searchsorted(a, x.detach().contiguous(), side=side)
        from_left = left[above] - (x - a[(above - 1).clamp(min=0)]) / b
        from_right = right[above] - (a[above.clamp(max=len(a) - 1)] - x) / b
        return torch.logsumexp(torch.stack([from_left, from_right]), 0)

    # at an atom |x - a| has the slope 0, the mean of its two sides
    return (split("left") + split("right")) / 2 - laplace.log_norm(pred)
