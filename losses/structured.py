"""Priors of labels in many dimensions, made of priors in few.

In hundreds of dimensions the labels fill a thin sheet, and Theorem 1, whose test labels are uniform
over all of R^D, asks for predictions stretched without limit across it: by (v + sigma^2) / v along
a direction of label variance v. Each prior here says less about p_train, and so asks for less:

    Subspace   p_train in the directions of largest variance, flat in the others
    Product    p_train(y) = prod_j p_j(y_j), blocks of dimensions (joints) on their own

Both are exact for a likelihood whose noise is the same in all directions.

N: rows; D: label dimensions; R: dimensions of the subspace; B: blocks.
"""

from collections.abc import Sequence

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from .likelihoods import Likelihood
from .priors import Prior


class Subspace(Prior):
    """A prior on y @ basis, for an orthonormal basis (D, R); flat in every other direction."""

    basis: Tensor

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is made
    def __init__(self, prior: Prior, basis: ArrayLike | Tensor):
        super().__init__()
        basis = torch.as_tensor(basis, dtype=torch.float32).detach().clone()
        shape, gram = tuple(basis.shape), basis.mT @ basis if basis.ndim == 2 else basis
        if basis.ndim != 2 or not torch.allclose(gram, torch.eye(len(gram)).to(gram), atol=1e-4):
            raise ValueError(f"basis must be (D, R) with orthonormal columns, got {shape}")
        self.prior = prior
        self.register_buffer("basis", basis)

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        basis = self.basis.to(pred)
        return self.prior.log_evidence(likelihood, pred @ basis, target @ basis)

    def log_prob(self, target: Tensor) -> Tensor:
        return self.prior.log_prob(target @ self.basis.to(target))


class Product(Prior):
    """Independent priors on B blocks of D / B dimensions each."""

    def __init__(self, priors: Sequence[Prior]):
        super().__init__()
        self.priors = nn.ModuleList(priors)

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        blocks = zip(self.priors, self._blocks(pred), self._blocks(target), strict=True)
        parts = [prior.log_evidence(likelihood, p, t) for prior, p, t in blocks]  # pyright: ignore
        return torch.stack(parts).sum(0)

    def log_prob(self, target: Tensor) -> Tensor:
        parts = zip(self.priors, self._blocks(target), strict=True)
        return torch.stack([prior.log_prob(t) for prior, t in parts]).sum(0)  # pyright: ignore

    def _blocks(self, rows: Tensor) -> Sequence[Tensor]:
        if rows.shape[-1] % len(self.priors):
            raise ValueError(
                f"{rows.shape[-1]} dimensions cannot be cut into {len(self.priors)} equal blocks"
            )
        return rows.chunk(len(self.priors), -1)
