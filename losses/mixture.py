"""p_train(y) as a mixture of Gaussians, sum_k w_k N(y; mu_k, Sigma_k): the prior of GAI (Eq. 3.10).

N: samples; D: label dimensions; K: components.
"""

import math
import os
import secrets
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from .batches import as_array, double, is_single, normalised, numbers
from .likelihoods import Likelihood
from .priors import Prior

MAX_BYTES = 1_000_000_000  # of an unpacked file


class GaussianMixture(Prior):
    """weights (K,), means (K, D), covariances (K, D, D).

    Examples:
        >>> prior = GaussianMixture.fit(train_labels, components=8)
        >>> loss = BalancedLoss(Gaussian(sigma=1.0), prior)
    """

    @torch.inference_mode(False)  # its tensors take part in training, wherever it is created
    def __init__(self, weights: Any, means: Any, covariances: Any):
        super().__init__()
        w = normalised(weights, "mixture weights")
        mu, cov = numbers(means), numbers(covariances)
        k, d = len(w), mu.shape[-1]
        if mu.shape != (k, d) or cov.shape != (k, d, d):
            raise ValueError(
                "a mixture has weights (K,), means (K, D) and covariances (K, D, D), got "
                f"{tuple(w.shape)}, {tuple(mu.shape)}, {tuple(cov.shape)}"
            )
        values = torch.linalg.eigvalsh(cov)
        if not torch.isfinite(mu).all() or not (values > 0).all():
            raise ValueError(
                "the means must be finite and every covariance positive definite; its smallest "
                f"eigenvalue is {values.min().item():.3g}. Regularise the fit."
            )
        self.weights, self.means, self.covariances = (nn.Buffer(t) for t in (w, mu, cov))
        self._set_precision()

    def _set_precision(self) -> None:
        deviations = self.covariances[:, 0, 0].sqrt()
        self.single = self.means.shape[-1] == 1 and is_single(self.means, deviations)

    def _load_from_state_dict(self, *given):  # pyright: ignore
        super()._load_from_state_dict(*given)
        self._set_precision()

    def log_evidence(self, likelihood: Likelihood, pred: Tensor, target: Tensor) -> Tensor:
        self.check(target)
        return likelihood.log_evidence_mixture(pred, self)

    def log_prob(self, target: Tensor) -> Tensor:
        return self.log_density(target, target.new_zeros(()))

    def parameters_for(self, x: Tensor) -> list[Tensor]:
        """The parameters in the precision of x, or in float64: in several dimensions, because the
        covariance of labels of low rank is nearly singular, and for means far from zero.
        """
        given = (self.weights, self.means, self.covariances)
        return [t.to(x.dtype) if self.single else double(t) for t in given]

    def log_density(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log sum_k w_k N(x; mu_k, Sigma_k + diag(sigma^2)): (N, D), () or (D,) -> (N,). In one
        dimension sigma may also be (N, 1).
        """
        weights, means, covariances = self.parameters_for(x)
        dims, var = x.shape[-1], sigma.to(means.dtype).square()
        if dims == 1:
            variance = covariances[:, 0, 0] + var
            square, log_det = (x - means[:, 0]).square() / variance, variance.log()
        else:  # in a Cholesky factor's coordinates; _ex does not make a GPU wait
            covariances = covariances + torch.diag(var.expand(dims))
            factor = torch.linalg.cholesky_ex(covariances).L  # (K, D, D)
            r = (x[:, None] - means).permute(1, 2, 0)  # (K, D, N)
            square = torch.linalg.solve_triangular(factor, r, upper=False).square().sum(1).mT
            log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)  # (K,)
        log_p = -(square + log_det + dims * math.log(2 * math.pi)) / 2  # (N, K)
        return torch.logsumexp(weights.log() + log_p, -1).to(x.dtype)

    def check(self, target: Tensor) -> None:
        if target.shape[-1] != self.means.shape[-1]:
            raise ValueError(
                f"the mixture has {self.means.shape[-1]} dimensions, the labels have "
                f"{target.shape[-1]}; fit it on labels of the same shape."
            )

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

        At most `max_samples` labels are sampled at random; None takes all. Weighted labels (such as
        a histogram's centres and counts) are repeated max_samples * share times, by systematic
        sampling or, as in the released depth code, with `round_down`. `fill_below`: labels before
        the first with a weight get its weight, as there. `regularisation` is added to every
        covariance's diagonal, in units of the labels' mean variance. The start of the fit depends
        on `seed` and on the precision `dtype`.
        """
        from sklearn import mixture  # slow to import, and only needed here
        from sklearn.exceptions import ConvergenceWarning

        from .reweight import fill_below as filled

        y = as_array(labels).astype(dtype)
        y = y[:, None] if y.ndim == 1 else y
        if y.ndim != 2 or len(y) < components or not np.isfinite(y).all():
            least = f"at least {components} finite labels"
            raise ValueError(f"expected {least} of shape (N, D), got {y.shape}")
        rng = np.random.default_rng(seed)
        if sample_weight is not None:
            if max_samples is None or (fill_below and not (np.diff(y[:, 0]) > 0).all()):
                raise ValueError(
                    "Weighted labels need a number as max_samples, and fill_below needs labels in "
                    f"increasing order; got max_samples={max_samples}, labels {y[:3, 0]}..."
                )
            share = np.asarray(sample_weight, dtype=np.float64)
            share = normalised(filled(share) if fill_below else share, "sample weights").numpy()
            ticks = (np.arange(max_samples) + rng.uniform()) / max_samples
            drawn = np.searchsorted(np.cumsum(share), ticks).clip(max=len(share) - 1)
            y = np.repeat(y, (max_samples * share).astype(int), 0) if round_down else y[drawn]
        elif max_samples is not None and len(y) > max_samples:
            y = y[rng.choice(len(y), max_samples, replace=False)]
        floor = regularisation * (float(y.var(axis=0).mean()) or 1e-12)
        model = mixture.GaussianMixture(components, reg_covar=floor, random_state=seed)
        with warnings.catch_warnings():  # more components than labels: some coincide
            warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
            model.fit(y)
        return cls(model.weights_, model.means_, model.covariances_)

    def save(self, path: str | Path) -> None:
        """Write an npz of plain arrays, atomically."""
        path = Path(path)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        names = ("weights", "means", "covariances")
        with open(part, "xb") as file:
            np.savez(file, **{name: getattr(self, name).cpu().numpy() for name in names})
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> "GaussianMixture":
        """Read a file of `save`; nothing in it is executed."""
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
            if size > MAX_BYTES:
                raise ValueError(f"it unpacks to {size:,} bytes, more than {MAX_BYTES:,}")
            with np.load(path, allow_pickle=False) as file:
                return cls(file["weights"], file["means"], file["covariances"])
        except FileNotFoundError:
            raise FileNotFoundError(f"no mixture at {path}; write one with prior.save") from None
        except Exception as error:
            expected = "expected an npz of weights, means, covariances"
            raise ValueError(f"{path} is no mixture: {expected} ({error})") from error
