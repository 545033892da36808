"""p_train(y): priors of the training labels.

A prior gives the log-evidence of Theorem 1, log E_{y' ~ p_train}[ p_bal(y' | x) ], for any
likelihood that can be averaged over it, and its own log p_train(y). The mixture of Gaussians is
in mixture.py, class frequencies are in categorical.py.

N: samples; D: label dimensions; K: atoms or bins.
"""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, distributed, nn

from .batches import gather, is_transformed
from .likelihoods import Likelihood


class Prior(nn.Module):
    """Base class. `counts_labels`: p_train(y) is the probability of one of finitely many labels,
    so the loss keeps -log p_train(y) and is a cross-entropy, never negative.
    """

    counts_labels = False

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        """(N, W), (N, D) -> (N,). Labels that are NaN are no samples of p_train."""
        raise TypeError(f"{type(self).__name__} defines no log_evidence")

    def log_prob(self, target: Tensor) -> Tensor:
        """log p_train(y): (N, D) -> (N,)."""
        raise TypeError(f"{type(self).__name__} defines no log_prob")


class Flat(Prior):
    """All labels are equally frequent: the evidence is constant, and the loss is the plain one
    (MSE, L1, Huber, cross-entropy). The constant makes its minimum zero.
    """

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        return -likelihood.log_norm(pred).detach().expand(len(pred))


class Bins(Prior):
    """p_train on K label values: the prior of BNI (Eq. 3.16).

    `power` tempers it: p_train^power aims at test labels distributed as p_train^(1 - power),
    uniform for 1 (the paper's), unchanged for 0.

    Example:
        >>> prior = Bins.fit(train_ages, edges=range(0, 122), smoothing={"kernel": "gaussian"})
    """

    centers: Tensor
    weights: Tensor

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is created
    def __init__(self, centers: Any, weights: Any, power: float = 1.0):
        super().__init__()
        w = normalised(weights, "bin weights")
        c = torch.as_tensor(centers).detach().clone().to(w.dtype)
        if c.shape != w.shape or not torch.isfinite(c).all():
            shapes = f"{tuple(c.shape)}, {tuple(w.shape)}"
            raise ValueError(f"Expected finite centers (K,) and weights (K,), got {shapes}.")
        c, w, self.power = c[w > 0], w[w > 0], float(power)
        self.register_buffer("centers", c)
        self.register_buffer("weights", w**power / (w**power).sum())

    @classmethod
    def fit(
        cls,
        labels: ArrayLike,
        edges: ArrayLike,
        smoothing: dict | None = None,
        power: float = 1.0,
        sample_weight: ArrayLike | None = None,
        fill_below: bool = False,
    ) -> "Bins":
        """Count one-dimensional labels between edges (K + 1,); `smoothing` applies LDS
        ({"kernel": "gaussian", "size": 5, "sigma": 2}, see `reweight.smooth`).

        sample_weight: how often each label occurs. fill_below: the empty bins below the smallest
        label are not smoothed but filled afterwards, see `reweight.fill_below`.
        """
        from .reweight import fill_below as filled
        from .reweight import histogram, smooth

        bounds = np.asarray(edges, dtype=float)
        counts = histogram(labels, bounds, sample_weight)
        if smoothing is not None:
            first = int(np.argmax(counts > 0)) if fill_below else 0
            smoothed = smooth(counts[first:], **{"whole": False, **smoothing})
            counts = np.concatenate([counts[:first], smoothed])
        return cls((bounds[:-1] + bounds[1:]) / 2, filled(counts) if fill_below else counts, power)

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        return likelihood.log_evidence_bins(pred, *self.atoms(target), self.power)

    def atoms(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """(K, 1) labels and (K,) log-weights."""
        if target.shape[-1] != 1:
            raise ValueError(
                f"Bins are one-dimensional, the labels have {target.shape[-1]} dimensions; use a "
                "GaussianMixture or Batch()."
            )
        return self.centers.to(target.dtype)[:, None], self.weights.to(target.dtype).log()

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-probability of the nearest center."""
        nearest = (target - self.centers.to(target.dtype)).abs().argmin(-1)
        return self.weights.to(target.dtype).log()[nearest]


class Batch(Prior):
    """The labels of the batch as samples of p_train: the prior of BMC (Eq. 3.14).

    In training, labels (not gradients) are gathered over all ranks, so that the prior is that of
    one process with the joined batch; in evaluation each rank uses its own. `queue` keeps that
    many labels of earlier batches (labels do not go stale, so they are exact samples);
    `max_atoms` samples that many of all labels at random.

    Eq. 3.14 sums over the labels where Theorem 1 averages: each label of the batch has p_train(y)
    = 1/K, and the loss keeps that constant. It is the paper's Eq. 3.15, a cross-entropy. Of a
    single label it is zero; in eval mode, it is then the plain loss.
    """

    def __init__(self, queue: int = 0, max_atoms: int | None = None):
        super().__init__()
        if queue < 0 or (max_atoms is not None and max_atoms < 2):
            raise ValueError(
                f"Expected queue >= 0 and max_atoms >= 2 or None, got {queue} and {max_atoms}."
            )
        self.queue, self.max_atoms, self.earlier = queue, max_atoms, torch.empty(0)
        self.warned = False  # of a batch of one label

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        atoms, log_weights = self.atoms(target)
        if len(atoms) > 1:
            return likelihood.log_evidence_atoms(pred, atoms, log_weights)
        if not (self.warned or torch.compiler.is_compiling()):
            self.warned = True
            warnings.warn(
                "A batch of one label has no others to compare with: in training its gradient is "
                "zero, in evaluation its loss is the plain one. Use a larger batch, "
                "drop_last=True, or BMC(queue=1024).",
                stacklevel=2,
            )
        if self.training:
            return likelihood.log_prob(atoms, pred)
        return Flat().log_evidence(likelihood, pred, target)

    def atoms(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """(K, D) labels and (K,) log-weights, -inf for NaN. Call once per step: fills the queue."""
        labels = target.detach()
        if self.training and distributed.is_available() and distributed.is_initialized():
            labels = gather(labels)
        if self.queue:
            labels = torch.cat([labels, self.earlier.to(labels)]) if len(self.earlier) else labels
            if self.training and not is_transformed():  # a vmapped batch is not kept
                self.earlier = labels[: self.queue].clone()
        if self.max_atoms is not None and len(labels) > self.max_atoms:
            labels = labels[torch.randperm(len(labels), device=labels.device)[: self.max_atoms]]
        log_weights = torch.where(labels[:, 0].isnan(), -torch.inf, 0.0).to(labels.dtype)
        return labels.nan_to_num(0.0), log_weights

    def log_prob(self, target: Tensor) -> Tensor:
        return target.new_zeros(len(target))

    def get_extra_state(self) -> Tensor:
        """Return the queue, so that a resumed run has it."""
        return self.earlier

    def set_extra_state(self, state: Tensor) -> None:
        self.earlier = state


def normalised(weights: Any, name: str) -> Tensor:
    """Return (K,) weights that sum to one, in float32 or better."""
    w = torch.as_tensor(weights).detach().clone()
    w = w.to(torch.promote_types(w.dtype, torch.float32))
    if w.ndim != 1 or not torch.isfinite(w).all() or (w < 0).any() or not w.sum() > 0:
        raise ValueError(
            f"{name} must be (K,) finite, non-negative and sum to a positive number, got shape "
            f"{tuple(w.shape)} with sum {w.sum().item():.6g}."
        )
    return w / w.sum()


def log_evidence_slopes(
    likelihood: Likelihood, prior: Prior, pred: Tensor
) -> tuple[Tensor, Tensor]:
    """(N, D) -> first and second derivatives of the log-evidence along each dimension, (N, D) each,
    in chunks of samples.
    """
    parts = [_slopes(likelihood, prior, x) for x in pred.split(4096)]
    return torch.cat([first for first, _ in parts]), torch.cat([second for _, second in parts])


def _slopes(likelihood: Likelihood, prior: Prior, pred: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = pred.clone().requires_grad_()
        value = prior.log_evidence(likelihood, x, pred)
        if not value.requires_grad:  # a flat prior
            return torch.zeros_like(pred), torch.zeros_like(pred)
        (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        if not first.requires_grad:
            return first, torch.zeros_like(pred)
        columns = [
            torch.autograd.grad(first[:, d].sum(), x, retain_graph=True)[0][:, d]
            for d in range(x.shape[-1])
        ]
    return first.detach(), torch.stack(columns, -1)
