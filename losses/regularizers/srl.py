"""SRL: the features of all labels should be a smooth, evenly spaced curve that fills the sphere.

With features z of length one and a centroid c_k, of length one, for each label bin k,

    contrast      -mean_i log [ exp(z_i . c_k(i) / T) / sum_k exp(z_i . c_k / T) ],  c detached
    envelope      1 - mean_p max_k cos(p, c_k),  p random points on the sphere
    homogeneity   sum_k ||c_k+1 - c_k||^2 / (y_k+1 - y_k),  over neighbouring bins

A bin without samples in the batch has the centroid of earlier epochs, without gradient: a running
mean with a momentum. A bin that had no sample yet does not count.

Dong, Wu, Chen, Zou, Zhang, Zhou: Improve Representation for Imbalanced Regression through Geometric
Constraints, CVPR 2025. Constants of the released code, contrast / envelope / homogeneity: ages
10 / 100 / 0.01, T 0.3; STS-B 1e-4 / 1e-2 / 1e-4, T 0.1; 2,000 points.

Deviation: the released homogeneity is sum_k -c_k+1 . c_k + 0.1 var_k(c_k+1 . c_k), for STS-B with
the opposite sign of the sum. For steps of 1 the first term is half of this one minus a constant.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from ..batches import as_array
from .regularizer import Regularizer, directions


class SRL(Regularizer):
    """Surrogate-driven representation learning, for labels of one dimension.

    Arguments:
        contrast, envelope, homogeneity: factors of the three parts.
        temperature: T.
        points: number of random points.
        step: width of a label bin.
        momentum: share of the earlier epochs in a centroid.

    Examples:
        >>> srl = SRL(step=1.0)
        >>> srl.fit(train_labels)  # (N, 1)
        >>> loss = functional.l1_loss(pred, target) + srl(features, pred, target)
        >>> srl.end_epoch()  # after each epoch
    """

    def __init__(
        self,
        weight: float = 1.0,
        contrast: float = 10.0,
        envelope: float = 100.0,
        homogeneity: float = 0.01,
        temperature: float = 0.3,
        points: int = 2000,
        step: float = 1.0,
        momentum: float = 0.9,
        limit: int = 1024,
    ):
        super().__init__(weight, limit, temperature=temperature, points=points, step=step)
        self.contrast, self.envelope, self.homogeneity = contrast, envelope, homogeneity
        self.temperature, self.step, self.momentum = temperature, step, momentum
        self.points = points
        self.labels = nn.Buffer(torch.zeros(0))  # (K,), centres of the bins
        self.centroids = nn.Buffer(torch.zeros(0, 0))  # (K, F), of earlier epochs
        self.sums = nn.Buffer(torch.zeros(0, 0))  # (K, F), of this epoch
        self.count = nn.Buffer(torch.zeros(0))  # (K,)
        self.sphere = nn.Buffer(torch.zeros(0, 0), persistent=False)  # (points, F)

    def fit(self, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> "SRL":
        """Set the bins to those that hold training labels (N, 1)."""
        labels = as_array(labels)
        if labels.ndim != 2 or labels.shape[1] != 1:
            raise ValueError(f"SRL needs labels (N, 1), got {labels.shape}.")
        bins = np.unique(np.round(labels[:, 0] / self.step)) * self.step
        self.labels.resize_(len(bins)).copy_(torch.from_numpy(bins))
        self.count.resize_(len(bins)).zero_()
        for buffer in (self.centroids, self.sums, self.sphere):
            buffer.resize_(0, 0)  # they start anew
        return self

    def term(self, features: Tensor, pred: Tensor, target: Tensor) -> Tensor:
        if not len(self.labels):
            raise ValueError("SRL has no label bins; call fit(train_labels) first.")
        self._set_width(features.shape[1])
        z = directions(features)
        middle = (self.labels[1:] + self.labels[:-1]) / 2
        bins = torch.bucketize(target[:, 0].to(middle.dtype), middle)
        ones = z.new_ones(len(z))
        count = z.new_zeros(len(self.labels)).index_add(0, bins, ones)
        sums = z.new_zeros(len(self.labels), z.shape[1]).index_add(0, bins, z)
        if self.training:
            self.sums += sums.detach()
            self.count += count
        present = count > 0
        earlier = self.centroids.to(z.dtype)
        known = present | (earlier != 0).any(1)
        centroids = torch.where(present[:, None], sums / count.clamp(min=1)[:, None], earlier)
        centroids, labels = functional.normalize(centroids[known], dim=1), self.labels[known]
        own = (known.cumsum(0) - 1)[bins]
        logits = z @ centroids.detach().T / self.temperature
        contrast = functional.cross_entropy(logits, own)
        envelope = 1 - (self.sphere.to(z.dtype) @ centroids.T).amax(1).mean()
        steps = (centroids[1:] - centroids[:-1]).square().sum(1)
        homogeneity = (steps / (labels[1:] - labels[:-1])).sum()
        return self.contrast * contrast + self.envelope * envelope + self.homogeneity * homogeneity

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Update the centroids of the bins that had samples."""
        seen = (self.count > 0)[:, None]
        new = (self.centroids != 0).any(1, keepdim=True)
        keep = self.momentum * new.to(self.centroids)  # 0 for a bin seen for the first time
        mean = self.sums / self.count.clamp(min=1)[:, None]
        self.centroids.copy_(
            torch.where(seen, keep * self.centroids + (1 - keep) * mean, self.centroids)
        )
        self.sums.zero_()
        self.count.zero_()

    def _set_width(self, width: int) -> None:
        """Allocate the buffers for features of this width, in place: DDP holds references."""
        if self.sphere.shape[1] == width:
            return
        shape = (len(self.labels), width)
        for buffer in (self.centroids, self.sums):
            if buffer.shape != shape:
                buffer.resize_(shape).zero_()
        generator = torch.Generator().manual_seed(0)  # the same points on every rank
        points = functional.normalize(torch.randn(self.points, width, generator=generator), dim=1)
        self.sphere.resize_(points.shape).copy_(points)
