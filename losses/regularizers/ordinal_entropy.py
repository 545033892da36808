"""Ordinal Entropy: spread the features of different labels, in proportion to the label distance.

With z the features of length one and c_y the centre of the features of label y, of length one,

    mean_i ||z_i - c_{y_i}||  -  mean over pairs of labels of w_ab ||c_a - c_b||,
    w_ab = (|y_a - y_b| - min) / max,  over the pairs of the batch.

The first term makes labels compact; only labels with several samples count, as the distance of a
single sample to its centre is zero. The second one is an estimate of the entropy.

Zhang, Yang, Mi, Zheng, Yao: Improving Deep Regression with Ordinal Entropy, ICLR 2023. The released
examples multiply it by 1e-3.
"""

import torch
from torch import Tensor
from torch.nn import functional

from .regularizer import Regularizer, label_distance


class OrdinalEntropy(Regularizer):
    """Compactness within labels minus weighted distance between labels.

    Examples:
        >>> entropy = OrdinalEntropy(weight=1e-3)
        >>> loss = functional.mse_loss(pred, target) + entropy(features, pred, target)
    """

    def __init__(self, weight: float = 1e-3, limit: int = 1024):
        super().__init__(weight, limit)

    def term(self, features: Tensor, pred: Tensor, target: Tensor) -> Tensor:
        labels, which, count = torch.unique(target, dim=0, return_inverse=True, return_counts=True)
        sums = features.new_zeros(len(labels), features.shape[1]).index_add(0, which, features)
        centres = functional.normalize(sums / count[:, None], dim=1)
        several = count[which] > 1
        away = (functional.normalize(features, dim=1) - centres[which])[several]
        compactness = torch.linalg.vector_norm(away, dim=1).sum() / several.sum().clamp(min=1)
        if len(labels) < 3:  # one pair: its weight is 0
            return compactness
        a, b = torch.triu_indices(len(labels), len(labels), 1, device=target.device)
        weight = label_distance(labels)[a, b]
        weight = (weight - weight.min()) / weight.max()
        distance = torch.linalg.vector_norm(centres[a] - centres[b], dim=1)
        return compactness - (weight * distance).mean()
