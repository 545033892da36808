"""p_train(y) as a mixture of Gaussians, sum_k w_k N(y; mu_k, Sigma_k): the prior of GAI (Eq. 3.10).

Each covariance is eigendecomposed once, Sigma_k = Q_k diag(lambda_k) Q_k^T, because then

    log N(x; mu_k, Sigma_k + sigma^2 I) = -1/2 sum_d [ (Q_k^T (x - mu_k))_d^2 / (lambda_kd +
    sigma^2)
                                                       + log(lambda_kd + sigma^2) + log 2 pi ]

costs no factorisation for any sigma, and the K rotations are one matrix product.

N: rows; D: label dimensions; K: components.
"""

import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from losses.density import fill_below as filled
from losses.likelihoods import Likelihood
from losses.priors import Prior, normalised


class GaussianMixture(Prior):
    """weights (K,), means (K, D), covariances (K, D, D).

    Example:
        >>> prior = GaussianMixture.fit(train_labels, components=8)
        >>> loss = BalancedLoss(Gaussian(sigma=1.0), prior)
    """

    weights: Tensor
    means: Tensor
    covariances: Tensor
    eigenvalues: Tensor
    eigenvectors: Tensor
    form = "mixture"

    def __init__(self, weights: Any, means: Any, covariances: Any):
        super().__init__()
        w = normalised(weights, "mixture weights")
        mu, cov = (torch.as_tensor(t).detach().to(w.dtype) for t in (means, covariances))
        k, d = len(w), mu.shape[-1]
        if mu.shape != (k, d) or cov.shape != (k, d, d):
            raise ValueError(
                "a mixture of K components in D dimensions has weights (K,), means (K, D) and "
                "covariances (K, D, D), got "
                f" {tuple(w.shape)}, {tuple(mu.shape)}, {tuple(cov.shape)}"
            )
        values, vectors = torch.linalg.eigh(cov)
        if not torch.isfinite(mu).all() or not (values > 0).all():
            raise ValueError(
                "the means must be finite and every covariance positive definite; its smallest "
                f"eigenvalue is {values.min().item():.3g}. Regularise the fit."
            )
        self.register_buffer("weights", w)
        self.register_buffer("means", mu)
        self.register_buffer("covariances", cov)
        self.register_buffer("eigenvalues", values)
        self.register_buffer("eigenvectors", vectors)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def log_weights(self) -> Tensor:
        return self.weights.log()

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        self._check(target)
        return likelihood.log_evidence_mixture(pred, self)

    @property
    def fixed(self) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.weights, self.means, self.eigenvalues, self.eigenvectors

    def components(self, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        self._check(target)
        dtype = target.dtype
        eigen = self.eigenvalues.to(dtype), self.eigenvectors.to(dtype)
        return self.means.to(dtype), *eigen, self.log_weights.to(dtype)

    def _check(self, target: Tensor) -> None:
        if target.shape[-1] != self.means.shape[-1]:
            raise ValueError(
                f"the mixture has {self.means.shape[-1]} dimensions, the labels have "
                f"{target.shape[-1]}; fit it on labels of the same shape."
            )

    def log_prob(self, target: Tensor) -> Tensor:
        return self.log_density(target, target.new_zeros(()))

    def log_density(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log sum_k w_k N(x; mu_k, Sigma_k + diag(sigma^2)): (N, D), () or (D,) -> (N,)."""
        per_component = self._per_dimension if sigma.ndim and len(sigma) > 1 else self._isotropic
        constant = x.shape[-1] / 2 * math.log(2 * math.pi)
        logits = self.log_weights.to(x.dtype) - constant + per_component(x, sigma)
        return torch.logsumexp(logits, -1)

    def _isotropic(self, x: Tensor, sigma: Tensor) -> Tensor:
        """(N, K) log-densities without the 2 pi, for one sigma in all directions."""
        k, d = self.means.shape
        variance = self.eigenvalues.to(x.dtype) + sigma.square()  # (K, D)
        if d == 1:
            r = x - self.means.to(x.dtype)[:, 0]
            return -(r.square() / variance[:, 0] + variance[:, 0].log()) / 2
        turn = self.eigenvectors.to(x.dtype)  # (K, D, D), columns are the axes
        axes = turn.transpose(0, 1).reshape(d, k * d)
        origin = torch.einsum("kd,kde->ke", self.means.to(x.dtype), turn)
        r = (x @ axes).unflatten(-1, (k, d)) - origin  # (N, K, D)
        square = torch.einsum("nkd,kd->nk", r.square(), 1 / variance)
        return -(square + variance.log().sum(-1)) / 2

    def _per_dimension(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The same for one sigma per dimension: no eigenbasis is shared, so one Cholesky a step."""
        covariance = self.covariances.to(x.dtype) + torch.diag(sigma.square())
        factor = torch.linalg.cholesky(covariance)  # (K, D, D)
        r = (x[:, None] - self.means.to(x.dtype)).permute(1, 2, 0)  # (K, D, N)
        square = torch.linalg.solve_triangular(factor, r, upper=False).square().sum(1)  # (K, N)
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -square.T / 2 - log_det

    @classmethod
    def fit(
        cls,
        labels: ArrayLike | Tensor,
        components: int,
        seed: int = 0,
        sample_weight: ArrayLike | None = None,
        regularisation: float = 1e-6,
        max_samples: int | None = 100_000,
        fill_below: bool = False,
        round_down: bool = False,
        dtype: str = "float64",
    ) -> "GaussianMixture":
        """Expectation-maximisation by scikit-learn on labels (N, D) or (N,).

        Weighted labels (a histogram's centres and counts, say) are drawn systematically, i.e.
        each as often as its weight says, up to one; of more than `max_samples` labels so many are
        drawn at random, with None all are taken. `regularisation` is added to every covariance's
        diagonal, in units of the labels' mean variance.

        fill_below: weighted labels in increasing order whose weight is zero, below the first that
        has one, get its weight, as in the released depth code. round_down: each weighted label is
        taken floor(max_samples * share) times, as there. dtype: the precision of the fit, on which
        the start of the expectation-maximisation depends as on the seed.
        """
        from sklearn import mixture  # as slow to import as torch, and only needed here
        from sklearn.exceptions import ConvergenceWarning

        y = np.asarray(labels, dtype=dtype)
        y = y[:, None] if y.ndim == 1 else y
        if y.ndim != 2 or len(y) < components or not np.isfinite(y).all():
            raise ValueError(
                f"expected at least {components} finite labels of shape (N, D), got {y.shape}"
            )
        rng = np.random.default_rng(seed)
        if sample_weight is not None:
            if max_samples is None or (fill_below and not (np.diff(y[:, 0]) > 0).all()):
                raise ValueError(
                    "weighted labels are drawn, so max_samples is a number, and where empty ones "
                    f"are filled they are in increasing order; got max_samples={max_samples}, "
                    f"labels {y[:3, 0]}..."
                )
            share = np.asarray(sample_weight, dtype=np.float64)
            share = normalised(filled(share) if fill_below else share, "sample weights").numpy()
            y = y[(_repeated if round_down else _systematic)(share, max_samples, rng)]
        elif max_samples is not None and len(y) > max_samples:
            y = y[rng.choice(len(y), max_samples, replace=False)]
        floor = regularisation * max(float(y.var(axis=0).mean()), 1e-12)
        model = mixture.GaussianMixture(components, reg_covar=floor, random_state=seed)
        with warnings.catch_warnings():  # more components than labels: some coincide, as they may
            warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
            model.fit(y)
        return cls(model.weights_, model.means_, model.covariances_)

    def save(self, path: str | Path) -> None:
        """Writes an npz of plain arrays, whole or not at all."""
        path = Path(path)
        part = path.with_name(path.name + ".part")
        names = ("weights", "means", "covariances")
        with open(part, "wb") as file:
            np.savez(file, **{name: getattr(self, name).cpu().numpy() for name in names})
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> "GaussianMixture":
        """Reads what `save` wrote; nothing in the file is executed."""
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls(file["weights"], file["means"], file["covariances"])
        except FileNotFoundError:
            raise FileNotFoundError(f"no mixture at {path}; write one with prior.save") from None
        except Exception as error:
            raise ValueError(
                f"{path} is no mixture: expected an npz of weights, means, covariances ({error})"
            ) from error


def _systematic(weights: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """`draws` indices, index i as often as draws * weights[i] says, rounded up or down."""
    ticks = (np.arange(draws) + rng.uniform()) / draws
    return np.searchsorted(np.cumsum(weights), ticks).clip(max=len(weights) - 1)


def _repeated(weights: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Index i floor(draws * weights[i]) times: no draw at all."""
    return np.repeat(np.arange(len(weights)), np.floor(draws * weights).astype(int))
