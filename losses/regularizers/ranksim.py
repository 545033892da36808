"""RankSim: samples that are near in label space should be near in feature space.

With one sample per distinct label, n of them, and ranks divided by n,

    sum_i mean_j (rank(-|y_i - y_j|) - rank(cos(z_i, z_j)))^2.

A rank is piecewise constant. Its gradient is that of the black-box solver of Vlastelica et al.
(2020): with s the similarities, g = d loss / d rank and the interpolation strength lambda,

    d loss / d s = (rank(s + lambda g) - rank(s)) / lambda.

Gong, Mori, Tung: RankSim: Ranking Similarity Regularization for Deep Imbalanced Regression, ICML
2022. Constants of the released code: weight 100 for ages, 3e-4 for STS-B; interpolation 2.
"""

import torch
from torch import Tensor
from torch.nn import functional

from .regularizer import Regularizer, label_distance


class RankSim(Regularizer):
    """Ranking similarity of features and labels.

    Depends on the labels only through the order of their distances, so that a shift or a scale of
    the labels changes nothing. Of several samples with one label, the first of the batch is used:
    a random one, because training batches are shuffled.

    Arguments:
        weight: factor of the term. As in the released code, it multiplies g.
        interpolation: lambda.

    Examples:
        >>> ranksim = RankSim(weight=100.0)
        >>> loss = functional.mse_loss(pred, target) + ranksim(features, pred, target)
    """

    def __init__(self, weight: float = 100.0, interpolation: float = 2.0, limit: int = 1024):
        super().__init__(weight, limit, interpolation=interpolation)
        self.interpolation = interpolation

    def term(self, features: Tensor, pred: Tensor, target: Tensor) -> Tensor:
        distinct, inverse = torch.unique(target, dim=0, return_inverse=True)
        last = torch.arange(len(target) - 1, -1, -1, device=target.device)
        first = last.new_zeros(len(distinct)).scatter_(0, inverse.flip(0), last)
        z, n = functional.normalize(features[first], dim=1), len(distinct)
        similarity = z @ z.T
        label_ranks, feature_ranks = ranks(-label_distance(distinct)), ranks(similarity)
        error = feature_ranks - label_ranks
        strength = max(self.interpolation * self.weight, 1e-8)
        moved = ranks(similarity.detach() + strength * 2 * error / n)
        slope = (moved - feature_ranks) / strength
        # The value of the ranks, with the gradient `slope` to the similarities.
        straight = ((similarity - similarity.detach()) * slope).sum()
        return error.square().mean(1).sum() + straight


def ranks(values: Tensor) -> Tensor:
    """(n, n) -> (n, n), the rank of each value in its row over n: 1 / n for the largest, 1 for the
    smallest. Of equal values, the last has the smallest rank."""
    order = values.detach().argsort(dim=1, stable=True).flip(1)
    return (order.argsort(1) + 1).to(values.dtype) / values.shape[1]
