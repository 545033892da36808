"""p_train(y): priors of the training labels.

A prior gives the log-evidence of Theorem 1, log E_{y' ~ p_train}[ p_bal(y' | x) ], for any
likelihood that can be averaged over it, and its own log p_train(y). The mixture of Gaussians is
in mixture.py, class frequencies are in categorical.py.

N: samples; D: label dimensions; K: atoms or bins.
"""

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, distributed, nn

from .batches import even, gather, is_readable, is_single, is_transformed, normalised, numbers, skip
from .likelihoods import Likelihood


class Prior(nn.Module):
    """Base class. `counts_labels`: p_train(y) is the probability of one of finitely many labels,
    so the loss keeps -log p_train(y) and is a cross-entropy, never negative.
    """

    counts_labels = False
    least_scale = 0.0  # below it, a learned scale would leave the prior's resolution

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
        return -likelihood.log_norm(pred).detach().expand(pred.shape[0])


class Bins(Prior):
    """p_train on K label values: the prior of BNI (Eq. 3.16).

    `power` tempers it: p_train^power aims at test labels distributed as p_train^(1 - power),
    uniform for 1 (the paper's), unchanged for 0 (the plain loss). p_train is a density: `widths`
    (K,) of the bins matter where they differ; `fit` knows them.

    A learned scale stays above a quarter of the widest bin with labels: below, the sum over centers
    is no integral, and the loss of labels between them has no minimum.

    Examples:
        >>> edges = np.arange(-0.5, 122)  # whole ages are the centers of the bins
        >>> prior = Bins.fit(train_ages, edges, smoothing={"kernel": "gaussian"})
    """

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is created
    def __init__(self, centers: Any, weights: Any, power: float = 1.0, widths: Any = None):
        super().__init__()
        w, c = normalised(weights, "bin weights"), numbers(centers)
        v = torch.ones_like(w) if widths is None else numbers(widths).to(w)
        if not c.shape == w.shape == v.shape or not (c.isfinite() & v.isfinite() & (v > 0)).all():
            shapes = f"{tuple(c.shape)}, {tuple(w.shape)}, {tuple(v.shape)}"
            raise ValueError(
                f"Expected finite centers (K,), weights (K,) and widths (K,) > 0, got {shapes}."
            )
        if not math.isfinite(power):
            raise ValueError(f"power must be a finite number, got {power}.")
        self.least_scale = 0.0 if widths is None else v[w > 0].max().item() / 4
        c, w, v = (t[w > 0] for t in (c, w, even(v)))
        w = (w / v) ** power * v
        self.centers, self.weights, self.widths = (nn.Buffer(t) for t in (c, w / w.sum(), v))
        self.set_extra_state(power)

    @classmethod
    def fit(
        cls,
        labels: ArrayLike,
        edges: ArrayLike,
        smoothing: dict[str, Any] | None = None,
        power: float = 1.0,
        sample_weight: ArrayLike | None = None,
        fill_below: bool = False,
    ) -> "Bins":
        """Count one-dimensional labels between edges (K + 1,); `smoothing` applies LDS
        ({"kernel": "gaussian", "size": 5, "sigma": 2}, see `reweight.smooth`) to their density.

        sample_weight: how often each label occurs. fill_below: the empty bins below the smallest
        label are not smoothed but filled afterwards, see `reweight.fill_below`.
        """
        from .reweight import bin_mass

        bounds = np.asarray(edges, dtype=float)
        mass = bin_mass(labels, bounds, smoothing, sample_weight, fill_below)
        return cls((bounds[:-1] + bounds[1:]) / 2, mass, power, np.diff(bounds))

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        if self.power == 0:
            return -likelihood.log_norm(pred).detach().expand(pred.shape[0])
        return likelihood.log_evidence_bins(pred, *self.atoms(target), self.power, self.widths)

    def atoms(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """(K, 1) labels and (K,) log-weights, in float64 where float32 would move the labels."""
        if target.shape[-1] != 1:
            raise ValueError(
                f"Bins are one-dimensional, the labels have {target.shape[-1]} dimensions; use a "
                "GaussianMixture or Batch()."
            )
        dtype = target.dtype if self.single else self.centers.dtype
        return self.centers.to(dtype)[:, None], self.weights.to(dtype).log()

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-probability of the label's bin."""
        return self.weights.to(target.dtype).log()[self.index(target)]

    def index(self, target: Tensor) -> Tensor:
        """(N, 1) labels -> (N,) their bins, or the nearest ones."""
        return ((target - self.centers).abs() - self.widths / 2).argmin(-1)  # of (N, K)

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.power, dtype=torch.float64)

    def set_extra_state(self, state: Any) -> None:
        """Set the power, and whether float32 keeps the centers, which a state loads before."""
        gaps = self.centers.sort().values.diff()
        self.power, self.single = float(state), is_single(self.centers, gaps[gaps > 0])


class Batch(Prior):
    """The labels of the batch as samples of p_train: the prior of BMC (Eq. 3.14).

    In training, labels (not gradients) are gathered over all ranks, so that the prior is that of
    one process with the joined batch; in evaluation each rank uses its own. `queue` keeps that
    many labels of earlier batches (labels do not go stale, so they are exact samples);
    `max_atoms` samples that many of all labels at random, next to each sample's own label.

    Eq. 3.14 sums over the labels where Theorem 1 averages: each label of the batch has p_train(y)
    = 1/K, and the loss keeps that constant. It is the paper's Eq. 3.15, a cross-entropy; without
    the own label in the sum, it would have no lower bound. Of one label it is zero.
    """

    def __init__(self, queue: int = 0, max_atoms: int | None = None):
        super().__init__()
        if not (isinstance(queue, int) and queue >= 0 and (max_atoms is None or max_atoms >= 2)):
            expected, got = "queue >= 0 and max_atoms >= 2 or None", f"{queue!r} and {max_atoms!r}"
            raise ValueError(f"Expected whole numbers, {expected}, got {got}.")
        self.queue, self.max_atoms, self.earlier = queue, max_atoms, torch.empty(0)
        self.latest, self.warned = (self.earlier,) * 2, False  # last batch, and the queue before it

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        atoms, log_weights, missing = self.atoms(target)
        if atoms.shape[0] > 1:
            evidence = likelihood.log_evidence_atoms(pred, atoms, log_weights)
            if missing is not None:
                held = likelihood.held(pred, atoms.amin(0), atoms.amax(0))
                own = likelihood.log_prob(target.nan_to_num(0.0), held)
                evidence = torch.where(missing, torch.logaddexp(evidence, own), evidence)
            if is_readable(target):
                return evidence
            single = Flat().log_evidence(likelihood, pred, target)  # of one label, as below
            if self.training:
                single = likelihood.log_prob(target.nan_to_num(0.0), pred)
            return torch.where(log_weights.isfinite().sum() > 1, evidence, single)
        if atoms.shape[0] and not (self.warned or torch.compiler.is_compiling()):
            self.warned = True
            message = "A batch of one label has no gradient in training, in eval mode the plain "
            message += "loss. Use a larger batch, drop_last=True, or BMC(queue=1024)."
            warnings.warn(message, stacklevel=2)
        if self.training and atoms.shape[0]:
            return likelihood.log_prob(atoms.expand(pred.shape[0], -1), pred)
        return Flat().log_evidence(likelihood, pred, target)

    def atoms(self, target: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """(K, D) labels, (K,) log-weights and, where `max_atoms` left out labels, (N,) whether a
        sample's own is missing. Labels that are NaN are dropped where they can be read; elsewhere
        their log-weight is -inf. So is that of the ends of all labels, which follow sampled ones:
        robust likelihoods hold the evidence there. Call once per step: fills the queue.
        """
        labels, missing, ends, readable = target.detach(), None, [], is_readable(target)
        if readable and (bad := labels[:, 0].isnan()).any():
            labels = labels[~bad]
        local = labels
        if self.training and distributed.is_available() and distributed.is_initialized():
            labels = gather(labels)
        if self.queue:
            labels = self.queued(labels)
        if self.max_atoms is not None and labels.shape[0] > self.max_atoms:
            ends = [labels.nan_to_num(torch.inf).amin(0), labels.nan_to_num(-torch.inf).amax(0)]
            labels, missing = self.sampled(labels, local, target)
        log_weights = labels.new_zeros(labels.shape[0])
        if not readable:
            bad = labels[:, 0].isnan()
            log_weights = log_weights.masked_fill(bad & ~bad.all(), -torch.inf)
            labels = labels.where(~bad[:, None], labels.nanmean(0).nan_to_num(0.0))
        if ends:
            labels = torch.cat([labels, torch.stack(ends)])
            log_weights = torch.cat([log_weights, log_weights.new_full((2,), -torch.inf)])
        return labels, log_weights, missing

    def sampled(self, labels: Tensor, local: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return `max_atoms` of all labels, and whether those of the target (N, D) are missing;
        `local` is the target without labels that were dropped.
        """
        bad = labels[:, 0].isnan()
        order = torch.rand_like(labels[:, 0]).masked_fill(bad, 2.0).argsort()  # NaN comes last
        dropped = target[:, 0].isnan() & (local.shape[0] < target.shape[0])
        chosen, own = order[: self.max_atoms], (~dropped).cumsum(0) - 1
        own = own + skip(local) if self.training else own
        return labels[chosen], (~torch.zeros_like(bad).index_fill(0, chosen, True))[own]

    def queued(self, labels: Tensor) -> Tensor:
        """Return the labels of this batch and of earlier ones, and keep the latest. Activation
        checkpointing repeats a call in the backward pass, with the queue of the first.
        """
        earlier, eager = self.earlier, self.training and not torch.compiler.is_compiling()
        if in_backward := eager and torch._C._current_graph_task_id() >= 0:
            batch, earlier = self.latest
            if not torch.equal(batch.nan_to_num(), labels.nan_to_num()):
                raise RuntimeError(
                    "A checkpointed loss was recomputed after another batch had changed its queue. "
                    "Call backward after each batch, or keep the loss out of the checkpoint."
                )
        every = torch.cat([labels, earlier.to(labels)]) if len(earlier) else labels
        if self.training and not in_backward and not is_transformed():  # vmap: not kept
            order = every[:, 0].isnan().to(torch.uint8).argsort(stable=True)  # NaN leaves first
            self.latest, self.earlier = (labels, earlier), every[order[: self.queue]]
        return every

    def log_prob(self, target: Tensor) -> Tensor:
        return target.new_zeros(target.shape[0])

    def get_extra_state(self) -> Tensor:
        """Return the queue, so that a resumed run has it."""
        return self.earlier

    def set_extra_state(self, state: Tensor) -> None:
        self.earlier = state
