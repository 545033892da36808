"""Likelihoods over finitely many labels: classes, and label bins.

    p_bal(y | x) = softmax(logits)_y

With class frequencies as prior, Theorem 1 is logit adjustment (Eq. 3.9); with label bins, it
makes a balanced histogram regression.

N: rows; K: classes or bins.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from .batches import full_precision
from .likelihoods import Likelihood


class Categorical(Likelihood):
    """pred (N, K) logits, target (N,) or (N, 1) classes; with a flat prior, cross-entropy."""

    def __init__(self, classes: int):
        super().__init__()
        self.classes = classes

    def width(self, dims: int) -> int:
        return self.classes

    def as_rows(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return _rows(self, pred, target, self.classes)

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        return functional.log_softmax(pred, -1).gather(-1, target.long())[..., 0]

    def decode(self, pred: Tensor) -> Tensor:
        return pred.argmax(-1, keepdim=True)

    def log_evidence_classes(self, pred: Tensor, log_weights: Tensor) -> Tensor:
        if len(log_weights) != self.classes:
            raise ValueError(f"expected {self.classes} class weights, got {len(log_weights)}")
        return torch.logsumexp(pred + log_weights, -1) - torch.logsumexp(pred, -1)


class Histogram(Likelihood):
    """Softmax over the K bins between `edges` (K + 1,) of a one-dimensional label.

    pred (N, K) logits, target (N, 1) real. Labels are seen through a Gaussian of width `soft` (in
    the labels' unit): the target of bin k is the mass q_k(y) that N(y, soft^2) puts there,
    normalised, and

        log p(y | pred) = sum_k q_k(y) log softmax(pred)_k;

    soft=0 is the plain histogram. decode: the median (optimal for MAE), or the mean (for MSE).
    """

    edges: Tensor

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is made
    def __init__(self, edges: Any, soft: float = 0.0, point: Literal["median", "mean"] = "median"):
        super().__init__()
        bounds = torch.as_tensor(edges).detach().clone()
        bounds = bounds.to(torch.promote_types(bounds.dtype, torch.float32))
        if bounds.ndim != 1 or len(bounds) < 3 or not (bounds.diff() > 0).all():
            raise ValueError(f"edges must be at least three increasing numbers, got {edges!r}")
        if not soft >= 0:
            raise ValueError(f"soft is a standard deviation and cannot be negative, got {soft}")
        if point not in ("median", "mean"):
            raise ValueError(f"a histogram is decoded by its median or its mean, got {point!r}")
        self.soft, self.point = float(soft), point
        self.register_buffer("edges", bounds)

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    def width(self, dims: int) -> int:
        if dims != 1:
            raise ValueError(f"a histogram has one-dimensional labels, got {dims} dimensions")
        return self.bins

    def as_rows(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return _rows(self, pred, target, self.bins)

    def index(self, target: Tensor) -> Tensor:
        """(..., 1) labels -> (...) bins; labels beyond the edges go to the first or last bin."""
        return (target >= self.edges[1:-1].to(target.dtype)).sum(-1)

    def soft_target(self, target: Tensor) -> Tensor:
        """(N, 1) -> (N, K): q_k(y), rows sum to one."""
        if not self.soft:
            return functional.one_hot(self.index(target), self.bins).to(target.dtype)
        edges = self.edges.to(target.dtype)
        y = target.clamp(edges[0], edges[-1])
        mass = torch.special.erf((edges - y) / (self.soft * math.sqrt(2))).diff(dim=-1)
        return mass / mass.sum(-1, keepdim=True)

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        logs = functional.log_softmax(pred, -1) + 0 * target  # a label that is not finite: NaN
        if not self.soft:
            return logs.gather(-1, self.index(target)[:, None])[:, 0]
        return torch.einsum("nk,nk->n", self.soft_target(target), logs)

    @full_precision
    def decode(self, pred: Tensor, point: Literal["median", "mean"] | None = None) -> Tensor:
        """(N, K) -> (N, 1); within the median's bin the mass is spread evenly."""
        edges, mass = self.edges.to(pred.dtype), functional.softmax(pred, -1)
        if (point or self.point) == "mean":
            return mass @ ((edges[1:] + edges[:-1]) / 2)[:, None]
        above = mass.cumsum(-1)
        k = (above < 0.5).sum(-1, keepdim=True).clamp(max=self.bins - 1)
        inside = mass.gather(-1, k)
        part = ((0.5 - (above.gather(-1, k) - inside)) / inside).clamp(0, 1)
        return edges[k] + part * (edges[k + 1] - edges[k])

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        """Each atom counts for the bin that holds it: log sum_k w_k softmax(pred)_k."""
        return self.log_evidence_bins(pred, atoms, log_weights, 1.0)

    def log_evidence_bins(
        self, pred: Tensor, atoms: Tensor, log_weights: Tensor, power: float
    ) -> Tensor:
        """p_train of a bin is the sum over its atoms, and then raised to the power: w_a are powers
        already, so a bin's is (sum_a w_a^(1/power))^power. No power, no balancing.
        """
        if power == 0:
            return pred.new_zeros(len(pred))
        weights = torch.zeros(self.bins, dtype=pred.dtype, device=pred.device)
        log_p = (log_weights - log_weights.amax()) / power
        weights = weights.index_add(0, self.index(atoms), log_p.exp())
        log_w = power * weights.log() + log_weights.amax()
        return torch.logsumexp(pred + log_w, -1) - torch.logsumexp(pred, -1)


def _rows(kind: Likelihood, pred: Tensor, target: Tensor, width: int) -> tuple[Tensor, Tensor]:
    target = target[:, None] if target.ndim == 1 else target
    if pred.ndim != 2 or pred.shape[-1] != width or target.shape != (len(pred), 1):
        raise ValueError(
            f"{type(kind).__name__} expects pred (N, {width}) and target (N, 1), got "
            f"{tuple(pred.shape)} and {tuple(target.shape)}"
        )
    return pred, target
