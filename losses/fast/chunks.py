"""Very many rows for likelihoods other than the Gaussian: the definition's sums, a bounded number
of rows at a time, and exact running sums for Laplace noise in one dimension. Both are plain steps
of torch, which can be differentiated as often as one likes.

N: rows; D: label dimensions; K: atoms, components.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..robust import Laplace

NOTHING = -1e30  # the logarithm of no weight: -inf has no second derivative
NUMBERS = 1 << 21  # rows x components x dimensions that are worked on together


def in_chunks(function: Callable[[Tensor], Tensor], pred: Tensor, components: int) -> Tensor:
    """function(pred), (N, D) -> (N,), row by row; recomputed in the backward pass."""
    size = max(1, NUMBERS // (components * pred.shape[-1]))
    parts = [checkpoint(function, rows, use_reentrant=False) for rows in pred.split(size)]
    return torch.cat(parts)  # pyright: ignore[reportArgumentType]


def laplace_atoms(laplace: Laplace, pred: Tensor, atoms: Tensor, log_weights: Tensor) -> Tensor:
    """`laplace.log_evidence_atoms` in one dimension: |x - a| splits at x, and each side is a
    running sum.

    With the atoms sorted and x between a_i and a_(i+1),
        sum_k w_k e^-|x - a_k|/b = e^-(x - a_i)/b L_i + e^-(a_(i+1) - x)/b R_(i+1)
    where L_i and R_i collect the atoms up to and from a_i: exact, kinks included.
    """
    order = atoms[:, 0].argsort()
    a = atoms[order, 0].double()
    b, log_w = laplace.scale_for(a[:, None]), log_weights[order].double().clamp(min=NOTHING)
    left = torch.logcumsumexp(log_w + a / b, 0) - a / b
    right = torch.logcumsumexp((log_w - a / b).flip(0), 0).flip(0) + a / b
    none = left.new_full((1,), NOTHING)
    left, right = (torch.cat(t).to(pred.dtype) for t in ([none, left], [right, none]))
    x, b, a = pred[:, 0], laplace.scale_for(pred), a.to(pred.dtype)

    def split(side: str) -> Tensor:
        """An atom at x itself belongs to one side."""
        above = torch.searchsorted(a, x.detach().contiguous(), side=side)
        from_left = left[above] - (x - a[(above - 1).clamp(min=0)]) / b
        from_right = right[above] - (a[above.clamp(max=len(a) - 1)] - x) / b
        return torch.logsumexp(torch.stack([from_left, from_right]), 0)

    # at an atom |x - a| has the slope 0, the mean of its two sides
    return (split("left") + split("right")) / 2 - laplace.log_norm(pred)
