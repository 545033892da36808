"""The speed of the losses, apart from their definition: right, or "not mine".

`mean_loss` knows some pairs of a likelihood and a prior, by their exact types: a subclass, which
may define anything anew, always gets the definition. So do calls under torch.func, gradients to a
prior or a weight, and tensors of types that are not torch's own.

    Gaussian x Bins, Batch, GaussianMixture    value and gradients in one step (fused.py), in one
                                               dimension and for many rows from a table (grid.py)
    Laplace x Bins, Batch                      many rows in one dimension: running sums (chunks.py)
    Laplace, Huber x anything                  many rows: the definition in chunks (chunks.py)
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from ..batches import is_transformed
from ..likelihoods import Gaussian
from ..mixture import GaussianMixture
from ..priors import Batch, Bins, Prior
from ..robust import Huber, Laplace
from .chunks import NUMBERS, in_chunks, laplace_atoms
from .compiled import line_mean
from .evidence import CANCELS
from .fused import FEW_ROWS, Attach, Components, Sigma, components, value_and_gradients

if TYPE_CHECKING:
    from ..balanced import BalancedLoss

ATOMS = (Bins, Batch)
PRIORS = (Bins, Batch, GaussianMixture)
TENSORS = (Tensor, nn.Parameter, FakeTensor)


def mean_loss(
    loss: "BalancedLoss", pred: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor | None:
    """The mean loss of rows pred, target (N, D), weight (N,) or None; or None: not mine."""
    likelihood: Any = loss.likelihood
    prior = loss.prior
    if type(prior) not in PRIORS or getattr(likelihood, "looks", 0):
        return None
    if is_transformed() or torch.autograd.forward_ad._current_level >= 0:
        return None
    if type(likelihood) is Gaussian:
        return _gaussian(loss, likelihood, prior, pred, target, weight)
    if type(likelihood) in (Laplace, Huber) and not torch.compiler.is_compiling():
        return _others(loss, likelihood, prior, pred, target, weight)
    return None


def has_gradients(loss: Any) -> bool:
    """Whether `gradients` knows the loss."""
    kinds = (type(getattr(loss, name, None)) for name in ("likelihood", "prior"))
    likelihood, prior = kinds
    if likelihood is not Gaussian or prior not in PRIORS or loss.full_nll:
        return False
    return prior is not GaussianMixture or not loss.likelihood.raw.ndim


def are_near(labels: Tensor, sigma: Tensor) -> bool:
    """Whether the labels (R, N, D) of R runs are so few sigma (R,) from their middle that products
    in float32 lose no digits that a gradient has.
    """
    reach = (labels - labels.mean(1, keepdim=True)).square().sum(-1).amax(1)
    return bool((reach <= CANCELS * labels.shape[-1] * sigma**2).all())


def gradients(
    loss: Any, pred: Tensor, target: Tensor, near: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """The gradients of the loss to pred (N, D) and to its parameters by name, by plain steps that
    torch.func.vmap can batch: for many runs at once, where nothing is differentiated again.
    `near`: what `are_near` said of the target, which vmap hides.
    """
    gaussian, over = loss.likelihood, components(loss.prior, target, None)
    _, to_pred, to_sigma = value_and_gradients(
        _sigma(gaussian, pred), over, loss.strength, pred, target, None, near=near
    )
    return to_pred, {} if to_sigma is None else {f"likelihood.{gaussian.symbol}": to_sigma}


def _gaussian(
    loss: "BalancedLoss",
    gaussian: Gaussian,
    prior: Any,
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
) -> Tensor | None:
    raw = getattr(gaussian, gaussian.symbol)
    mixture = type(prior) is GaussianMixture
    several = pred.shape[-1] > 1
    compiling = torch.compiler.is_compiling()
    if weight is not None and weight.requires_grad:
        return None
    if any(tensor.requires_grad for tensor in prior._buffers.values()):
        return None
    if mixture and several and (gaussian.raw.ndim or pred.device.type != "cpu"):
        return None  # no axes are shared, or finding them would take longer than all the rest
    if compiling:
        if several or pred.device.type != "cpu" or len(pred) <= FEW_ROWS:
            return None  # what is compiled from the definition is as fast
    elif not (type(pred) in TENSORS and type(target) in TENSORS and type(raw) in TENSORS):
        return None
    over, sigma = components(prior, target, weight), _sigma(gaussian, pred)
    given = sigma, over, loss.strength, pred, target, weight, type(prior) is not Batch
    if compiling:
        mean = line_mean(*given)
    else:
        parts = value_and_gradients(*given)

        def definition(pred: Tensor, sigma: Tensor | None) -> Tensor:
            held = Held(prior, None if mixture else over)
            plain = type(loss)(gaussian, held, loss.strength)
            state = {} if sigma is None else {f"likelihood.{gaussian.symbol}": sigma}
            return torch.func.functional_call(plain, state, (pred, target, weight))

        mean = Attach.apply(pred, raw, *parts, definition)
    if not loss.full_nll:
        return mean
    log_p = prior.log_prob(target)
    share = 1 / len(log_p) if weight is None else weight.to(log_p) / weight.to(log_p).sum()
    return mean / gaussian.unit - loss.strength * (log_p * share).sum()


def _sigma(gaussian: Gaussian, pred: Tensor) -> Sigma:
    raw = getattr(gaussian, gaussian.symbol)
    if raw.ndim:
        gaussian.scale_for(pred)  # one per dimension, or an error
    return Sigma(raw, gaussian.floor, gaussian.learned)


def _others(
    loss: "BalancedLoss",
    likelihood: Laplace | Huber,
    prior: Any,
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
) -> Tensor | None:
    rows, dims = pred.shape
    count = len(prior.weights) if type(prior) is not Batch else rows
    if rows <= FEW_ROWS and rows * count * dims <= NUMBERS:
        return None
    if type(prior) is GaussianMixture:
        if type(likelihood) is Huber or dims > 1:
            return None  # there is no such pair, and the definition says so
        prior.check(target)
        evidence = in_chunks(lambda x: likelihood.log_evidence_mixture(x, prior), pred, count)
    else:
        atoms, _, log_w = components(prior, target, weight)
        if type(likelihood) is Laplace and dims == 1:
            evidence = laplace_atoms(likelihood, pred, atoms, log_w)
        else:
            evidence = in_chunks(
                lambda x: likelihood.log_evidence_atoms(x, atoms, log_w), pred, len(atoms)
            )
    plain = type(loss)(likelihood, Held(prior, evidence), loss.strength, loss.full_nll)
    return loss.mean(plain.rows(pred, target), weight)


class Held(Prior):
    """A prior of which something is known already: its components, or the evidence itself."""

    def __init__(self, prior: Prior, known: Components | Tensor | None):
        super().__init__()
        self.prior, self.known = prior, known

    def log_evidence(self, likelihood, pred, target) -> Tensor:
        if isinstance(self.known, Tensor):
            return self.known
        if isinstance(self.known, Components):
            return likelihood.log_evidence_atoms(pred, self.known.c, self.known.log_w)
        return self.prior.log_evidence(likelihood, pred, target)

    def log_prob(self, target: Tensor) -> Tensor:
        return self.prior.log_prob(target)
