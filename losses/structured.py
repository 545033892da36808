"""Labels in many dimensions (human poses): priors composed of low-dimensional priors, and the
released kernel.

In hundreds of dimensions the labels fill a thin sheet. Theorem 1, whose test labels are uniform
over all of R^D, stretches predictions across it without limit: by (v + sigma^2) / v along a
direction of label variance v. These priors assume less about p_train, and so stretch less:

    Subspace   p_train in the directions of largest variance, flat in the others
    Product    p_train(y) = prod_j p_j(y_j), for independent blocks of dimensions (joints)

Subspace needs a likelihood with the same noise in all directions; Product may have one scale for
each dimension.

N: samples; D: label dimensions; R: dimensions of the subspace; B: blocks.
"""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from .batches import double, numbers
from .likelihoods import Gaussian, Likelihood, Location
from .priors import Prior

if TYPE_CHECKING:
    from .mixture import GaussianMixture


class GaussianKernel(Gaussian):
    """exp(-|y - pred|^2 / 2 sigma^2), without the normaliser: the released loss of human meshes.

    In Theorem 1 the normaliser cancels. At another strength the Gaussian keeps
    (1 - strength) D log sigma, which holds a learned sigma at the residuals' spread; the kernel
    keeps nothing, and its sigma grows.
    """

    normalised = False

    def log_evidence_mixture(self, pred: Tensor, mixture: "GaussianMixture") -> Tensor:
        norm = (self.scale_for(pred).log() + self.log_z).expand(pred.shape[-1]).sum()
        return super().log_evidence_mixture(pred, mixture) + norm


class Subspace(Prior):
    """A prior on y @ basis, for an orthonormal basis (D, R); flat in every other direction."""

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is created
    def __init__(self, prior: Prior, basis: ArrayLike | Tensor):
        super().__init__()
        basis = numbers(basis)
        shape, gram = tuple(basis.shape), basis.mT @ basis if basis.ndim == 2 else basis
        if basis.ndim != 2 or not torch.allclose(gram, torch.eye(len(gram)).to(gram), atol=1e-4):
            raise ValueError(f"basis must be (D, R) with orthonormal columns, got {shape}.")
        self.prior, self.least_scale = prior, prior.least_scale
        self.basis = nn.Buffer(basis)

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        if not isinstance(likelihood, Gaussian) or likelihood.raw.ndim:
            raise ValueError(
                "Subspace needs a Gaussian with one sigma for all dimensions, whose noise is the "
                "same in every direction; use another prior, or one sigma."
            )
        given = self.project(pred), self.project(target)
        return self.prior.log_evidence(likelihood, *given).to(pred.dtype)

    def log_prob(self, target: Tensor) -> Tensor:
        return self.prior.log_prob(self.project(target)).to(target.dtype)

    def project(self, values: Tensor) -> Tensor:
        """(N, D) -> (N, R), in float64: labels may be far from zero."""
        return double(values) @ double(self.basis)


def split(likelihood: Any, blocks: int) -> list[Any]:
    """Return the likelihood of each block: one scale per dimension is split."""
    shape = getattr(likelihood, "shape", None)  # Heteroscedastic's
    if shape is not None:
        name, values = "_modules", [{"shape": part} for part in split(shape, blocks)]
    elif isinstance(likelihood, Location) and likelihood.raw.ndim:
        name = "_buffers"
        values = [{likelihood.symbol: scale} for scale in likelihood.raw.chunk(blocks)]
    else:
        return [likelihood] * blocks
    parts = [copy.copy(likelihood) for _ in values]
    for part, value in zip(parts, values, strict=True):
        part.__dict__.update({"_parameters": {}, name: value})
    return parts


class Product(Prior):
    """Independent priors on B blocks of D / B dimensions each."""

    def __init__(self, priors: Sequence[Prior]):
        super().__init__()
        self.priors = nn.ModuleList(priors)
        self.least_scale = max(prior.least_scale for prior in priors)

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        outputs = pred.unflatten(-1, (-1, target.shape[-1]))  # (N, W / D, D): means, then scales
        preds = [block.flatten(1) for block in self._blocks(outputs)]
        parts: Any = self.priors, split(likelihood, len(preds)), preds, self._blocks(target)
        terms = [prior.log_evidence(*given) for prior, *given in zip(*parts, strict=True)]
        return torch.stack(terms).sum(0)

    def log_prob(self, target: Tensor) -> Tensor:
        blocks = zip(self.priors, self._blocks(target), strict=True)
        return torch.stack([prior.log_prob(t) for prior, t in blocks]).sum(0)  # pyright: ignore

    def _blocks(self, values: Tensor) -> Sequence[Tensor]:
        if values.shape[-1] % len(self.priors):
            raise ValueError(
                f"{values.shape[-1]} dimensions cannot be split into {len(self.priors)} equal "
                "blocks."
            )
        return values.chunk(len(self.priors), -1)
