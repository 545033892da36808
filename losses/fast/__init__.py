"""Faster rows of very many samples, and bounded memory for large batches.

    Gaussian, one dimension    the evidence is read from a table (table.py)
    Gaussian, Laplace, Huber   the definition, a chunk of samples at a time
    Gaussian                   many runs under vmap: gradients by formula (gradients.py)

Likelihood and prior are matched by their exact types, because a subclass may redefine anything.
torch.func, forward mode and compiled graphs use the definition.

N: samples; D: label dimensions; K: components.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.utils.stateless import _reparametrize_module

from ..batches import is_readable, is_transformed, samples
from ..likelihoods import Gaussian
from ..mixture import GaussianMixture
from ..priors import Batch, Bins
from ..robust import Huber, Laplace
from .gradients import are_near, gradients, has_gradients
from .table import in_chunks, table_rows

if TYPE_CHECKING:
    from ..balanced import BalancedLoss

__all__ = ["are_near", "fast_rows", "gradients", "has_gradients"]


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
