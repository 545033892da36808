"""Likelihoods over finitely many labels (classes, and label bins), and the class frequencies.

    p_bal(y | x) = softmax(logits)_y

With class frequencies as prior, Theorem 1 is logit adjustment (Eq. 3.9); with label bins, it
gives a balanced histogram regression.

N: samples; K: classes or bins.
"""

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from .batches import as_array, even, is_readable, normalised, numbers, one_dimension
from .likelihoods import Likelihood
from .mixture import GaussianMixture
from .priors import Batch, Bins, Prior


def quantile(edges: Tensor, mass: Tensor, share: float) -> Tensor:
    """(K + 1,), (N, K) -> (N, 1): the value with this share of the mass below; even in a cell."""
    above = mass.cumsum(-1)
    k = (above < share).sum(-1, keepdim=True).clamp(max=mass.shape[-1] - 1)
    inside = mass.gather(-1, k)
    part = ((share - (above.gather(-1, k) - inside)) / inside).clamp(0, 1)
    return edges[k] + part * (edges[k + 1] - edges[k])


class Categorical(Likelihood):
    """pred (N, K) logits, target (N,) or (N, 1) classes; with a flat prior, cross-entropy."""

    def __init__(self, classes: int):
        super().__init__()
        self.classes = classes

    def width(self, dims: int) -> int:
        return one_dimension(self.classes, dims)

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        if is_readable(target):
            bad = (target < 0) | (target >= self.classes) | (target % 1 != 0)
            if bad.any():
                got = f"0 to {self.classes - 1}, got {target[bad][0].item():g}"
                raise ValueError(f"Expected classes as whole numbers from {got}.")
        return functional.log_softmax(pred, -1).gather(-1, target.long())[..., 0]

    def decode(self, pred: Tensor) -> Tensor:
        return pred.argmax(-1, keepdim=True)

    def log_evidence_classes(self, pred: Tensor, log_weights: Tensor) -> Tensor:
        if len(log_weights) != self.classes:
            raise ValueError(f"Expected {self.classes} class weights, got {len(log_weights)}.")
        return torch.logsumexp(pred + log_weights, -1) - torch.logsumexp(pred, -1)


class Classes(Prior):
    """p_train of K classes: with a Categorical likelihood, logit adjustment (Eq. 3.9)."""

    counts_labels = True

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is created
    def __init__(self, weights: Any):
        super().__init__()
        self.weights = nn.Buffer(normalised(weights, "class weights"))
        if not (self.weights > 0).all():
            raise ValueError("A class without training samples has no prior; drop that class.")

    @classmethod
    def fit(cls, labels: ArrayLike, classes: int) -> "Classes":
        """Frequencies of integer labels 0 .. classes - 1."""
        return cls(np.bincount(as_array(labels).astype(np.int64).ravel(), minlength=classes))

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        return likelihood.log_evidence_classes(pred, self.weights.to(pred.dtype).log())

    def log_prob(self, target: Tensor) -> Tensor:
        return self.weights.log()[target[:, 0].long()]


class Histogram(Likelihood):
    """Softmax over the K bins between `edges` (K + 1,) of a one-dimensional label.

    pred (N, K) logits, target (N, 1) real. The target of bin k is the normalised mass q_k(y) that
    N(y, soft^2) puts there (`soft` in the labels' unit), and

        log p(y | pred) = sum_k q_k(y) log [ softmax(pred)_k / v_k ];

    soft=0 is the plain histogram. The widths v_k are one if all are equal (cross-entropy); else p
    is a density, so that labels are balanced, not bins. decode: the median (optimal for MAE), or
    the mean (for MSE).
    """

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is created
    def __init__(self, edges: Any, soft: float = 0.0, point: Literal["median", "mean"] = "median"):
        super().__init__()
        bounds = numbers(edges)
        if bounds.ndim != 1 or len(bounds) < 3 or not (bounds.diff() > 0).all():
            raise ValueError(f"edges must be at least three increasing numbers, got {edges!r}.")
        if not soft >= 0:
            raise ValueError(f"soft is a standard deviation and must be >= 0, got {soft}.")
        if point not in ("median", "mean"):
            raise ValueError(f"point must be median or mean, got {point!r}.")
        self.soft, self.point = float(soft), point
        self.edges = nn.Buffer(bounds)
        self.widths = nn.Buffer(even(bounds.diff()), persistent=False)

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    def width(self, dims: int) -> int:
        return one_dimension(self.bins, dims)

    def check_bins(self, prior: Bins) -> None:
        """Refuse a bin of the prior that reaches into two bins of the histogram."""
        if prior.power == 0 or prior.least_scale == 0:  # not used, or of unknown width
            return
        half = prior.widths * (2 * prior.least_scale / prior.widths.max())
        low, high = prior.centers - 0.99 * half, prior.centers + 0.99 * half
        if not torch.equal(self.index(low[:, None]), self.index(high[:, None])):
            raise ValueError(
                "A bin of the prior reaches into two bins of the Histogram, so the frequency of "
                "each is unknown; fit Bins with the edges of the Histogram, or finer ones."
            )

    def index(self, target: Tensor) -> Tensor:
        """(..., 1) labels -> (...) bins; labels beyond the edges go to the first or last bin."""
        return (target >= self.edges[1:-1].to(target.dtype)).sum(-1)

    def soft_target(self, target: Tensor) -> Tensor:
        """(N, 1) -> (N, K): q_k(y), which sum to one over the bins."""
        if not self.soft:
            return functional.one_hot(self.index(target), self.bins).to(target.dtype)
        edges = self.edges.to(target.dtype)
        y = target.clamp(edges[0], edges[-1])
        mass = torch.special.erf((edges - y) / (self.soft * math.sqrt(2))).diff(dim=-1)
        return mass / mass.sum(-1, keepdim=True)

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        logs = functional.log_softmax(pred, -1) - self.widths.log().to(pred.dtype)
        logs = logs + 0 * target  # a label that is not finite: NaN
        if not self.soft:
            return logs.gather(-1, self.index(target)[:, None])[:, 0]
        return torch.einsum("nk,nk->n", self.soft_target(target), logs)

    def decode(self, pred: Tensor, point: Literal["median", "mean"] | None = None) -> Tensor:
        """(N, K) -> (N, 1), in float32 or better."""
        if (point or self.point) == "median":
            return self.quantile(pred, 0.5)
        with torch.autocast(pred.device.type, enabled=False):
            edges, mass = self._edges_and_mass(pred)
            return mass @ ((edges[1:] + edges[:-1]) / 2)[:, None]

    def quantile(self, pred: Tensor, share: float) -> Tensor:
        """(N, K) -> (N, 1): the label with this share of the mass below; even within a bin."""
        return quantile(*self._edges_and_mass(pred), share)

    def _edges_and_mass(self, pred: Tensor) -> tuple[Tensor, Tensor]:
        pred = pred.to(torch.promote_types(pred.dtype, torch.float32))
        return self.edges.to(pred.dtype), functional.softmax(pred, -1)

    def log_evidence_atoms(self, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
        """Each atom counts for the bin that holds it: log sum_k w_k softmax(pred)_k / v_k."""
        return self.log_evidence_bins(pred, atoms, log_weights, 1.0, torch.ones_like(log_weights))

    def log_evidence_bins(
        self, pred: Tensor, atoms: Tensor, log_weights: Tensor, power: float, widths: Tensor
    ) -> Tensor:
        """p_train of a bin is the sum over its atoms, divided by v_k and raised to the power. The
        weights w_a are powers of a density already: an atom's mass is u_a (w_a / u_a)^(1/power)
        for its width u_a.

        With soft targets, bins without an atom are as frequent as the rarest other bin: the labels
        next to them have a share in them, so that with p_train = 0 the loss had no lower bound.
        """
        log_u = widths.log()
        log_p = (log_weights - log_u) / power + log_u
        peak = log_p.amax()
        mass = torch.zeros(self.bins, dtype=pred.dtype, device=pred.device)
        mass = mass.index_add(0, self.index(atoms), (log_p - peak).exp().to(pred.dtype))
        log_p = mass.log() + peak - self.widths.log()  # of a density
        if self.soft:
            log_p = log_p.where(mass > 0, log_p.where(mass > 0, math.inf).amin())
        log_w = power * log_p.to(pred.dtype)
        return torch.logsumexp(pred + log_w, -1) - torch.logsumexp(pred, -1)


AVERAGES: Any = (  # priors, and the method of a likelihood that they need, with its arguments
    ((Batch, Bins), Likelihood.log_evidence_atoms, 3),
    (Classes, Likelihood.log_evidence_classes, 2),
    (GaussianMixture, Likelihood.log_evidence_mixture, 2),
)


def check_pair(likelihood: Likelihood, prior: Prior) -> None:
    """Raise if the likelihood cannot be averaged over the prior, or over one in a Product."""
    for part in prior.modules():
        for kinds, missing, count in AVERAGES:
            if isinstance(part, kinds) and getattr(type(likelihood), missing.__name__) is missing:
                missing(likelihood, *[None] * count)  # raises
        if isinstance(part, Bins) and isinstance(likelihood, Histogram):
            likelihood.check_bins(part)
