"""ConR: push apart samples of different labels whose predictions are wrongly similar.

For an anchor i the positives P_i are the other samples with |y_i - y_j| <= w, the negatives N_i
those with |y_i - y_j| > w and |pred_i - pred_j| <= w. With s_ij = cos(z_i, z_j) / T,

    l_i = -1 / |P_i| sum_{p in P_i} log [ exp(s_ip)
          / (sum_{q in P_i} exp(s_iq) + sum_{k in N_i} exp(e |y_i - y_k|) exp(s_ik)) ].

The term is the mean over the batch; an anchor without positives or without negatives counts as 0.
A batch should hold two augmented views of each sample, which are positives of each other.

Keramati, Meng, Evans: ConR: Contrastive Regularizer for Deep Imbalanced Regression, ICLR 2024.
Constants of the released code: T 0.07; ages: w 1, weight 4, e 0.01; depth: 0.2, 0.2, 0.2.

Deviation: the sum over P_i in the released denominator has a further exp(0) = 1 for each sample
that is no positive, the anchor included. The equation has not, and neither has this class.
"""

import torch
from torch import Tensor
from torch.nn import functional

from .regularizer import Regularizer, label_distance


class ConR(Regularizer):
    """Contrastive regulariser. The predictions choose the pairs and get no gradient.

    Arguments:
        window: w, in units of the labels.
        push: e, how much more distant negatives are pushed.
        temperature: T.

    Examples:
        >>> conr = ConR(weight=4.0, window=1.0)
        >>> x, y = torch.cat([augment(x), augment(x)]), torch.cat([y, y])
        >>> loss = functional.l1_loss(pred, y) + conr(features, pred, y)
    """

    views = 2

    def __init__(
        self,
        weight: float = 4.0,
        window: float = 1.0,
        push: float = 0.01,
        temperature: float = 0.07,
        limit: int = 1024,
    ):
        super().__init__(weight, limit, temperature=temperature)
        self.window, self.push, self.temperature = window, push, temperature

    def term(self, features: Tensor, pred: Tensor, target: Tensor) -> Tensor:
        z = functional.normalize(features, dim=1)
        s = z @ z.T / self.temperature
        distance = label_distance(target)
        near = distance <= self.window
        negative = ~near & (label_distance(pred.detach()) <= self.window)
        positive = near & ~torch.eye(len(s), dtype=torch.bool, device=s.device)
        terms = torch.where(negative, s + self.push * distance, s)
        total = terms.where(positive | negative, -torch.inf).logsumexp(1, keepdim=True)
        counts = positive.any(1) & negative.any(1)  # anchors
        log_share = (s - total).where(positive & counts[:, None], 0)
        return -(log_share.sum(1) / positive.sum(1).clamp(min=1)).mean()
