"""Dist Loss: the predictions of a batch should be distributed like the training labels.

With the predictions sorted and q the quantile function of a kernel density estimate of the labels,

    mean_i |sort(pred)_i - q((i - 1/2) / N)|.

The sort is the soft sort of Blondel et al. (2020) with strength eps, the projection of
(1, ..., N) / eps onto the permutations of the predictions. It is the plain sort if neighbours are
less than 1 / eps apart. Around a wider gap, a block of predictions shares its gradient.

Nie, Tang, Hong: Dist Loss: Enhancing Regression in Few-Shot Region through Distribution Distance
Constraint, ICLR 2025. Constants of the released code: weight 1, bandwidth 0.5 (times the standard
deviation), eps 0.1, L1.

Deviation: the released code rounds N times the density to whole numbers of labels on a grid. The
quantiles are the limit of a fine grid.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.stats import gaussian_kde
from torch import Tensor, nn

from ..batches import as_array
from .regularizer import Regularizer

GRID = 1024  # label values at which the density is computed


class DistLoss(Regularizer):
    """Distance between the distributions of predictions and labels, dimension by dimension.

    Arguments:
        bandwidth: of the density, in standard deviations of the labels.
        strength: eps.

    Examples:
        >>> dist = DistLoss()
        >>> dist.fit(train_labels)  # (N, D)
        >>> loss = functional.l1_loss(pred, target) + dist(features, pred, target)
    """

    uses_features = False

    def __init__(
        self, weight: float = 1.0, bandwidth: float = 0.5, strength: float = 0.1, limit: int = 1024
    ):
        super().__init__(weight, limit, bandwidth=bandwidth, strength=strength)
        self.bandwidth, self.strength = bandwidth, strength
        self.cdf = nn.Buffer(torch.zeros(0, GRID))  # (D, GRID)
        self.values = nn.Buffer(torch.zeros(0, GRID))

    def fit(self, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> "DistLoss":
        """Estimate the quantile function of the training labels (N, D)."""
        labels = as_array(labels)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        tables = np.stack([distribution(column, weight, self.bandwidth) for column in labels.T])
        for buffer, table in zip((self.values, self.cdf), tables.swapaxes(0, 1), strict=True):
            buffer.resize_(table.shape).copy_(torch.from_numpy(table))
        return self

    def term(self, features: Tensor, pred: Tensor, target: Tensor) -> Tensor:
        if len(self.cdf) != pred.shape[1]:
            got = f"{len(self.cdf)} label dimensions, got predictions of {pred.shape[1]}"
            raise ValueError(f"DistLoss is fitted to {got}; call fit(train_labels) first.")
        share = (np.arange(len(pred)) + 0.5) / len(pred)
        tables = zip(self.cdf.cpu(), self.values.cpu(), strict=True)
        quantiles = np.stack([np.interp(share, cdf, values) for cdf, values in tables])
        made = torch.stack([soft_sort(column, self.strength) for column in pred.T])
        return (made - torch.from_numpy(quantiles).to(made)).abs().mean()


def distribution(labels: NDArray, weight: NDArray | None, bandwidth: float) -> NDArray:
    """(N,) -> (2, GRID): values over the range of the labels, and the distribution function."""
    values = np.linspace(labels.min(), labels.max(), GRID)
    if values[0] == values[-1]:
        return np.stack([values, np.linspace(0, 1, GRID)])
    distinct, inverse = np.unique(labels, return_inverse=True)
    count = np.bincount(inverse, weight)
    if len(distinct) > GRID:
        count, edges = np.histogram(distinct, GRID, weights=count)
        distinct = (edges[1:] + edges[:-1]) / 2
    # SciPy's variance of weighted values is larger than that of the labels they stand for.
    total, share = count.sum(), count / count.sum()
    ratio = (1 - np.square(share).sum()) * total / max(total - 1, 1e-300)
    density = gaussian_kde(distinct, bandwidth * ratio**0.5, weights=count)(values)
    cdf = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return np.stack([values, cdf / cdf[-1]])


def soft_sort(x: Tensor, strength: float) -> Tensor:
    """(N,) -> (N,), ascending. Blocks of values more than 1 / strength apart become values that are
    1 / strength apart, around the mean of the block."""
    ordered = x.sort().values
    even = torch.arange(len(x), device=x.device, dtype=torch.float64) / strength
    excess = (ordered.detach().double() - even).cpu().numpy()
    starts = isotonic_regression(excess, increasing=False).blocks
    size = torch.from_numpy(np.diff(starts)).to(x.device)
    block = torch.arange(len(size), device=x.device).repeat_interleave(size)
    even = even.to(x.dtype)
    sums = x.new_zeros(len(size)).index_add(0, block, ordered - even)
    return torch.where(size[block] > 1, even + (sums / size)[block], ordered)
