"""Balance a model that is already trained, from its predictions, with a dial.

    m = T^-1(plain prediction)      see inverse.py; in one dimension a monotone curve

N: samples; D: label dimensions; K: classes or bins; L: training labels.
"""

import copy
import math
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ..batches import is_readable
from ..categorical import Categorical, Histogram
from ..likelihoods import Location
from ..mixture import GaussianMixture
from ..priors import Flat, Prior
from . import fitting, logits, settings
from .inverse import ANYWHERE, Ends, curve, solve
from .labels import as_array, as_prior, label_range, tempered
from .settings import KINDS, Criterion, Method, Point

NODES = 4096  # of the curve


class Rebalancer(nn.Module):
    """r(pred) -> balanced predictions of the same shape, for tensors and NumPy arrays.

    prior: p_train, as Bins, a GaussianMixture, a scipy.stats.gaussian_kde, or the training labels;
        None takes the training labels given to `fit`. With a prior of one dimension, predictions
        of any shape are mapped one by one; with a mixture of D dimensions they are (N, D).
    sigma: the noise that p_bal assumes, one number or (D,); None: `fit` chooses it. 0: no change.
        `r(pred, sigma)` takes one per sample.
    power, strength: dials. p_train^power aims at test labels distributed as p_train^(1 - power);
        strength scales the balancing term, as in `BalancedLoss`. 1 is Theorem 1, 0 changes nothing.
    likelihood: the noise, "gaussian", "laplace" or "huber". For models that output logits, a
        Histogram or a Categorical: p_train(y | x) / p_train(y)^(power * strength), decoded.
    point: what the model was trained to predict, "mean" (MSE) or "median" (L1); by default the
        median for "laplace", else the mean.
    method: "theorem"; "isotonic", a regression of held-out labels on predictions with balanced
        weights; "blend", the two mixed by cross-validation.
    criterion: of `fit`: "nll" (maximum likelihood under Theorem 1), "bmae" or "brmse".
    bound: T^-1 diverges where a plain prediction lies outside T's range, so results are clipped to
        the range of the training labels. With a number, results that leave the range by more than
        that raise an error instead. A mixture has no range unless `fit` gets the training labels.

    Example:
        >>> balance = Rebalancer(train_labels).fit(val_pred, val_target)
        >>> balance(test_pred), balance.at(strength=0.5)(test_pred)
    """

    sigma: Tensor
    x: Tensor
    m: Tensor
    isotonic_x: Tensor
    isotonic_m: Tensor
    ends: Tensor
    log_p: Tensor

    @torch.inference_mode(False)
    def __init__(
        self,
        prior: Any = None,
        sigma: Any = None,
        power: float | None = 1.0,
        strength: float = 1.0,
        *,
        likelihood: str | Histogram | Categorical = "gaussian",
        point: Point | None = None,
        method: Method = "theorem",
        criterion: Criterion = "nll",
        bound: float | None = None,
    ):
        super().__init__()
        self.logits = None if isinstance(likelihood, str) else likelihood
        self.kind = likelihood if isinstance(likelihood, str) else "gaussian"
        self.point: Any = point or ("median" if self.kind == "laplace" else "mean")
        self.method: Method = method
        self.criterion: Criterion = criterion
        self.bound = bound
        self.power, self.strength, self.share = power, strength, 0.0  # share: of the isotonic curve
        self.given = self.ready = sigma is not None
        self.without_noise, self.labels, self.steps = False, False, 0
        settings.check(self)
        value = torch.as_tensor(math.nan if sigma is None else sigma, dtype=torch.float64)
        if (value < 0).any() or value.isinf().any() or value.ndim > 1:
            raise ValueError(f"sigma must be a number >= 0, or one per dimension, got {sigma}.")
        self.register_buffer("sigma", value.detach().clone())
        for name in ("x", "m", "isotonic_x", "isotonic_m", "log_p"):
            self.register_buffer(name, torch.empty(0, dtype=torch.float64))
        self.register_buffer("ends", torch.tensor(ANYWHERE, dtype=torch.float64))
        self.prior: Any = None
        if prior is not None:
            self._set_prior(prior)
            if self.given and method == "theorem":
                self._tabulate()

    @property
    def dims(self) -> int:
        return self.prior.means.shape[-1] if isinstance(self.prior, GaussianMixture) else 1

    def fit(
        self,
        pred: ArrayLike | Tensor,
        target: ArrayLike | Tensor,
        train_labels: ArrayLike | Tensor | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Choose sigma (unless given) and the isotonic curve on held-out predictions and labels,
        (N,) or (N, D); for a Histogram or a Categorical, logits (N, K) and power, if None.

        The held-out labels may be distributed differently from the training labels. train_labels
        (L,) or (L, D): the label range, and the prior if none was given.
        """
        labels = None if train_labels is None else as_array(train_labels)
        x, y = as_array(pred), as_array(target)
        if self.prior is None:
            if labels is None:
                raise ValueError("Rebalancer needs a prior; give one, or fit(..., train_labels).")
            self._set_prior(labels)
        if self.logits is not None:
            if self.power is None:
                self.power = logits.choose_power(self.logits, self.log_p, self.criterion, x, y)
            return self
        if isinstance(self.prior, Flat):
            return self
        x, y = (a[:, None] if a.ndim == 1 else a for a in (x, y))
        weight = np.ones(len(y)) if sample_weight is None else as_array(sample_weight)
        if labels is not None:
            ends = np.stack([labels.min(0), labels.max(0)]).reshape(2, -1)
            self.ends = torch.from_numpy(ends if self.dims > 1 else ends[:, 0].copy())
        fitting.fit_curves(self, x, y, weight, settings.held_out(self, x, y))
        self.ready = True
        self._tabulate()
        return self

    def forward(self, pred: Any, sigma: Any = None) -> Any:
        """Return balanced predictions; for a Histogram or a Categorical, logits (N, K) -> (N,)."""
        if not isinstance(pred, Tensor):
            values = np.asarray(pred)
            values = values if values.dtype.kind == "f" else values.astype(np.float64)
            if self.dims == 1 and sigma is None and self.logits is None:
                settings.check_values(self, values, bool(np.isfinite(values).all()))
                if self.changes_nothing:
                    return values.copy()
                found = np.interp(values.ravel(), self.x.cpu().numpy(), self.m.cpu().numpy())
                return found.reshape(values.shape).astype(values.dtype, copy=False)
            return self.forward(torch.tensor(values), sigma).numpy()
        if self.logits is not None:
            dial = self.strength * (1.0 if self.power is None else self.power)
            return logits.decoded(self.logits, self.log_p, dial, pred)
        dtype = pred.dtype if pred.is_floating_point() else torch.float32
        values = pred.to(self.sigma.dtype)
        finite = not is_readable(values) or bool(values.isfinite().all())
        settings.check_values(self, values, finite)
        if self.changes_nothing:
            return pred.to(dtype, copy=True)
        if sigma is not None or self.dims > 1:
            return self._solved(values, sigma).to(dtype)
        x, m, inside = self.x, self.m, values.clamp(self.x[0], self.x[-1])
        k = torch.searchsorted(x, inside.detach().contiguous()).clamp(1, len(x) - 1)
        slope = (m[1:] - m[:-1]) / (x[1:] - x[:-1])
        return (m[k - 1] + (inside - x[k - 1]) * slope[k - 1]).to(dtype)

    def plain(self, m: ArrayLike) -> NDArray:
        """T: the plain predictions whose balanced ones are m, for labels of one dimension."""
        return np.interp(np.asarray(m), self.m.cpu().numpy(), self.x.cpu().numpy())

    def at(self, **dials: Any) -> "Rebalancer":
        """Return a copy with another `strength`, `power` or `sigma`."""
        other = copy.deepcopy(self)
        for name, value in dials.items():
            if name not in ("strength", "power", "sigma"):
                raise TypeError(f"Unknown dial {name!r}; choose from strength, power, sigma.")
            if name == "power" and self.method != "theorem":
                raise ValueError("power is set before an isotonic fit; use strength.")
            new = torch.as_tensor(value).to(self.sigma) if name == "sigma" else value
            setattr(other, name, new)
        settings.check(other)
        other._tabulate()
        return other

    def noise(self, sigma: float) -> Location:
        kind: Any = KINDS[self.kind]
        return kind(torch.tensor(sigma, dtype=torch.float64), floor=1e-150)

    def curve(self, sigma: float, nodes: int = NODES, plain: bool = False) -> tuple[Tensor, Tensor]:
        """Return T's curve for this sigma; `plain`: of Theorem 1, whatever the dials, and so far
        beyond the label range that the noise of no label is cut off.
        """
        low, high = self._range()
        prior, noise = copy.deepcopy(self.prior).cpu(), self.noise(sigma)
        if plain:
            return curve(prior, noise, self.point, 1.0, (low - 3 * sigma, high + 3 * sigma), nodes)
        prior = tempered(prior, 1.0 if self.power is None else self.power, self.labels)
        return curve(prior, noise, self.point, self.strength, (low, high), nodes)

    def _set_prior(self, given: Any) -> None:
        if self.logits is not None:
            self.prior = logits.prior_of(self.logits, given)
            self.log_p = logits.frequencies(self.logits, self.prior)
            return
        self.prior = as_prior(given)
        self.without_noise = isinstance(self.prior, Flat)
        if not isinstance(given, Prior) and not hasattr(given, "dataset"):
            labels = as_array(given)
            self.labels = len(np.unique(labels)) > labels.size / 2  # samples of a density
        self.ends = torch.tensor(label_range(self.prior), dtype=torch.float64)

    def _range(self) -> Ends:
        low, high = self.ends.tolist()
        if self.bound is not None and not math.isfinite(high - low):
            raise ValueError("bound needs a label range; give the training labels to fit.")
        return low - (self.bound or 0.0), high + (self.bound or 0.0)

    @property
    def changes_nothing(self) -> bool:
        """Whether predictions stay as they are."""
        return self.strength == 0 or (self.share == 0 and self.without_noise)

    def _tabulate(self) -> None:
        self.without_noise = isinstance(self.prior, Flat) or not self.sigma.any()
        if self.dims > 1 or self.logits is not None or self.changes_nothing:
            return
        self.x, self.m = (t.to(self.sigma) for t in fitting.joined(self))

    def _solved(self, values: Tensor, sigma: Any) -> Tensor:
        """Newton's method, for several dimensions or one sigma per sample."""
        rows, noise = settings.rows_and_noise(self, values, sigma)
        prior = tempered(self.prior, 1.0 if self.power is None else self.power, self.labels)
        ends = self._range() if self.dims == 1 else ANYWHERE
        m, self.steps = solve(prior, noise, self.strength, rows, ends)
        limited = m.clamp(*self.ends)
        if self.bound is None or not is_readable(m):
            return limited.reshape(values.shape)
        settings.refuse(self, bool(((m - limited).abs() > self.bound).any()))
        return m.reshape(values.shape)

    def _load_from_state_dict(self, state_dict, prefix, *others):  # pyright: ignore
        """Buffers take the size of the state's."""
        for name, _ in self.named_buffers(recurse=False):
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *others)
        self.ready = not bool(self.sigma.isnan().any())
        self.without_noise = isinstance(self.prior, Flat) or not bool(self.sigma.any())
