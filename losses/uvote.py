"""UVOTE: several Laplace heads, each with its own weights; the most certain one predicts.

    pred (N, 2 H) = (means, log scales)
    loss   = mean_h w_h(y) [ |y - mean_h| / b_h + log 2 b_h ]
    w_h(y) = p_train(y)^-r_h, of mean one over the training labels

With r = 0 a head learns from all samples alike, with r = 1 from rare labels as from frequent ones.
Where a head has seen few samples its scale is large, so that the head of the smallest scale is the
one to ask. This is a weighted log-likelihood, not a density: use it with the prior `Flat`.

Jiang, Sainte Fare Garnot, Schindler, Wegner: Uncertainty Voting Ensemble for Imbalanced Deep
Regression, GCPR 2024: two heads with r = 0 and 1. Their code adds the heads, which is H times
this loss, keeps log b between -5 and 5, and for r = 1 counts fewer than 5 samples of a label as 5.

N: samples; H: heads.
"""

import math
from collections.abc import Sequence

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from .batches import one_dimension
from .likelihoods import Likelihood
from .priors import Bins


class UVOTE(Likelihood):
    """Laplace heads for labels of one dimension, whose weights are powers of the label frequency.

    prior: the training labels' bins. powers: r of each head.

    Examples:
        >>> uvote = UVOTE.fit(train_ages, np.arange(-0.5, 122))
        >>> loss = BalancedLoss(uvote, Flat())  # pred (N, 4)
        >>> age = uvote.decode(pred)
    """

    def __init__(self, prior: Bins, powers: Sequence[float] = (0.0, 1.0)):
        super().__init__()
        self.prior, self.powers = prior, nn.Buffer(torch.tensor(powers), persistent=False)

    @classmethod
    def fit(
        cls,
        labels: ArrayLike,
        edges: ArrayLike,
        powers: Sequence[float] = (0.0, 1.0),
        sample_weight: ArrayLike | None = None,
    ) -> "UVOTE":
        """Count the training labels between edges (K + 1,), as `Bins.fit` does."""
        return cls(Bins.fit(labels, edges, sample_weight=sample_weight), powers)

    def width(self, dims: int) -> int:
        return one_dimension(2 * len(self.powers), dims)

    def weights(self, target: Tensor) -> Tensor:
        """(N, 1) -> (N, H)."""
        mass, widths = (t.to(target).log() for t in (self.prior.weights, self.prior.widths))
        log_w = -self.powers.to(target) * (mass - widths)[:, None]  # (K, H): density^-r
        log_mean = torch.logsumexp(mass[:, None] + log_w, 0)  # over the labels
        return (log_w[self.prior.index(target)] - log_mean).exp()

    def log_prob(self, target: Tensor, pred: Tensor) -> Tensor:
        mean, log_scale = pred.chunk(2, -1)
        error = (target - mean).abs() * (-log_scale).exp()
        return -(self.weights(target) * (error + log_scale + math.log(2))).mean(-1)

    def decode(self, pred: Tensor) -> Tensor:
        mean, log_scale = pred.chunk(2, -1)
        return mean.gather(-1, log_scale.argmin(-1, keepdim=True))
