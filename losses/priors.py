"""p_train(y): what is known about the training labels.

A prior gives the log-evidence of Theorem 1, log E_{y' ~ p_train}[ p_bal(y' | x) ], for any
likelihood that can be averaged over it, and its own log p_train(y). The mixture of Gaussians is
in mixture.py.

N: rows; D: label dimensions; K: atoms, bins or classes.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from .batches import gather_rows, is_transformed
from .likelihoods import Likelihood


class Prior(nn.Module):
    """The base. `counts_labels`: p_train(y) is the probability of one of finitely many labels,
    so the loss keeps -log p_train(y) and is a cross-entropy, never negative.
    """

    counts_labels = False

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        """(N, W), (N, D) -> (N,). The batch's labels have no gradient; NaN is no sample."""
        raise TypeError(f"{type(self).__name__} defines no log_evidence")

    def log_prob(self, target: Tensor) -> Tensor:
        """log p_train(y): (N, D) -> (N,)."""
        raise TypeError(f"{type(self).__name__} defines no log_prob")


class Flat(Prior):
    """Every label is as frequent as every other: the evidence is constant, and the loss the plain
    one (MSE, L1, Huber, cross-entropy), by the choice of the constant zero at its best.
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

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is made
    def __init__(self, centers: Any, weights: Any, power: float = 1.0):
        super().__init__()
        w = normalised(weights, "bin weights")
        c = torch.as_tensor(centers).detach().clone().to(w.dtype)
        if c.shape != w.shape or not torch.isfinite(c).all():
            shapes = f"{tuple(c.shape)}, {tuple(w.shape)}"
            raise ValueError(f"expected finite centers (K,) and weights (K,), got {shapes}")
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
        """Counts of one-dimensional labels between edges (K + 1,), smoothed by LDS if asked
        (`smoothing={"kernel": "gaussian", "size": 5, "sigma": 2}`, see `reweight.smooth`).

        sample_weight: how often each label occurs. fill_below: the empty bins below the smallest
        label are not smoothed, and then filled, see `reweight.fill_below`.
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
                f"bins are one-dimensional, the labels have {target.shape[-1]} dimensions; "
                "use prior=gaussian_mixture or prior=batch."
            )
        return self.centers.to(target.dtype)[:, None], self.weights.to(target.dtype).log()

    def log_prob(self, target: Tensor) -> Tensor:
        """The probability of the nearest center."""
        nearest = (target - self.centers.to(target.dtype)).abs().argmin(-1)
        return self.weights.to(target.dtype).log()[nearest]


class Classes(Prior):
    """p_train of K classes: with a Categorical likelihood, logit adjustment (Eq. 3.9)."""

    weights: Tensor
    counts_labels = True

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is made
    def __init__(self, weights: Any):
        super().__init__()
        self.register_buffer("weights", normalised(weights, "class weights"))
        if not (self.weights > 0).all():
            raise ValueError("a class without a training sample has no prior; drop it or count it")

    @classmethod
    def fit(cls, labels: ArrayLike, classes: int) -> "Classes":
        """The frequencies of integer labels 0 .. classes - 1."""
        return cls(np.bincount(np.asarray(labels, dtype=np.int64).ravel(), minlength=classes))

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        return likelihood.log_evidence_classes(pred, self.weights.to(pred.dtype).log())

    def log_prob(self, target: Tensor) -> Tensor:
        return self.weights.log()[target[:, 0].long()]


class Batch(Prior):
    """The labels of the batch as samples of p_train: the prior of BMC (Eq. 3.14).

    Over several ranks the labels (never their gradients) are gathered in training, so that the
    prior is that of one process with the joined batch; in evaluation each rank has its own.
    `queue` keeps that many labels of earlier batches (labels do not go stale, so they are exact
    samples); `max_atoms` draws that many of all of them at random.

    Eq. 3.14 sums over the labels where Theorem 1 averages: each label of the batch has p_train(y)
    = 1/K, and the loss keeps that constant. It is the paper's Eq. 3.15, a cross-entropy.
    """

    def __init__(self, queue: int = 0, max_atoms: int | None = None):
        super().__init__()
        if queue < 0 or (max_atoms is not None and max_atoms < 2):
            raise ValueError(
                f"expected queue >= 0 and max_atoms >= 2 or None, got {queue} and {max_atoms}"
            )
        self.queue, self.max_atoms, self.earlier = queue, max_atoms, torch.empty(0)

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        return likelihood.log_evidence_atoms(pred, *self.atoms(target))

    def atoms(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """(K, D) labels and (K,) log-weights, -inf for no sample. Once a step: pushes the queue."""
        labels = gather_rows(target.detach()) if self.training else target.detach()
        if self.queue:
            labels = torch.cat([labels, self.earlier.to(labels)]) if len(self.earlier) else labels
            if self.training and not is_transformed():  # a vmapped batch is no batch to keep
                self.earlier = labels[: self.queue].clone()
        if self.max_atoms is not None and len(labels) > self.max_atoms:
            labels = labels[torch.randperm(len(labels), device=labels.device)[: self.max_atoms]]
        if len(labels) < 2:
            raise ValueError(
                "a batch prior needs at least two labels, got a batch of one: its loss is zero "
                "whatever the prediction. Use a larger batch, drop_last=True, or Batch(queue=1024)."
            )
        none = labels[:, 0].isnan()
        return labels.nan_to_num(0.0), torch.zeros_like(labels[:, 0]).masked_fill(none, -torch.inf)

    def log_prob(self, target: Tensor) -> Tensor:
        return target.new_zeros(len(target))

    def get_extra_state(self) -> Tensor:
        """The queue, so that a resumed run has it."""
        return self.earlier

    def set_extra_state(self, state: Tensor) -> None:
        self.earlier = state


def normalised(weights: Any, name: str) -> Tensor:
    """(K,) non-negative numbers that sum to one, at least in float32."""
    w = torch.as_tensor(weights).detach().clone()
    w = w.to(torch.promote_types(w.dtype, torch.float32))
    if w.ndim != 1 or not torch.isfinite(w).all() or (w < 0).any() or not w.sum() > 0:
        raise ValueError(
            f"{name} must be (K,) finite, non-negative and sum to a positive number, got shape "
            f"{tuple(w.shape)} with sum {w.sum().item():.6g}"
        )
    return w / w.sum()
