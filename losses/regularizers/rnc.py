"""Rank-N-Contrast: of any two samples, the one with the nearer label should have nearer features.

With s_ij = -||z_i - z_j|| / T, the mean over all pairs i != j of

    -log [ exp(s_ij) / sum of exp(s_ik) over k != i with |y_i - y_k| >= |y_i - y_j| ].

A batch should hold two augmented views of each sample. In the paper RnC alone trains the backbone,
then a head is trained on the frozen features.

Zha, Cao, Son, Yang, Katabi: Rank-N-Contrast: Learning Continuous Representations for Regression,
NeurIPS 2023. Constant of the released code: T 2.

The sums of an anchor are cumulative sums over the samples in order of their distance, so that time
and memory grow with N^2, not N^3.
"""

import torch
from torch import Tensor

from .regularizer import Regularizer, label_distance


class RnC(Regularizer):
    """Rank-N-Contrast. Depends on the labels only through the order of their distances.

    temperature: T.

    Examples:
        >>> rnc = RnC()
        >>> x, y = torch.cat([augment(x), augment(x)]), torch.cat([y, y])
        >>> loss = rnc(backbone(x), pred, y)
    """

    views = 2

    def __init__(self, weight: float = 1.0, temperature: float = 2.0, limit: int = 1024):
        super().__init__(weight, limit, temperature=temperature)
        self.temperature = temperature

    def term(self, features: Tensor, pred: Tensor, target: Tensor) -> Tensor:
        n = len(features)
        if n < 2:
            return features.sum() * 0
        s = label_distance(features) / -self.temperature
        others = ~torch.eye(n, dtype=torch.bool, device=s.device)
        s, distance = (x[others].view(n, n - 1) for x in (s, label_distance(target)))
        distance, order = distance.neg().sort(1)  # the farthest first
        s = s.gather(1, order)
        ties = torch.searchsorted(distance, distance, right=True) - 1  # last of equal distance
        return (s.logcumsumexp(1).gather(1, ties) - s).mean()
