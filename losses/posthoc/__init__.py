"""Balance a model that is already trained, from its predictions, with a dial.

    m = T^-1(plain prediction)      see inverse.py; in one dimension a monotone curve

N: samples; D: label dimensions; K: classes or bins; L: training labels.
"""

import copy
import math
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..batches import as_array, is_readable
from ..categorical import Categorical, Histogram
from ..mixture import GaussianMixture
from ..priors import Flat
from . import checks, fitting, inverse
from .fitting import Criterion, Method
from .inverse import ANYWHERE, NODES, Curve, Ends, Point
from .labels import as_prior, divided, log_frequencies, range_of, restored, tempered

DIALS = ("power", "strength", "bound", "point", "kind", "method", "criterion")


class Rebalancer(nn.Module):
    """r(pred) -> balanced predictions of the same shape, for tensors and NumPy arrays.

    prior: p_train, as Bins, a GaussianMixture, a scipy.stats.gaussian_kde, or the training labels;
        None: the training labels given to `fit`. With a prior of one dimension, predictions of any
        shape are mapped one by one; with a mixture of D dimensions they are (N, D).
    sigma: the noise of p_bal, one number or (D,); None: `fit` chooses it. 0: no change.
        `r(pred, sigma)` takes one per sample.
    power, strength: dials. p_train^power aims at test labels distributed as p_train^(1 - power);
        strength scales the balancing term, as in `BalancedLoss`. 1 is Theorem 1, 0 changes nothing.
    likelihood: the noise, "gaussian", "laplace" or "huber". For models that output logits, a
        Histogram or a Categorical: p_train(y | x) / p_train(y)^(power * strength), decoded.
    point: what the model was trained to predict: "mean" (MSE), or "median" (L1; of "laplace").
    method: "theorem"; "isotonic", a regression of held-out labels on predictions with balanced
        weights; "blend", the two mixed by cross-validation.
    criterion: of `fit`: "nll" (maximum likelihood under Theorem 1), "bmae" or "brmse".
    bound: results are clipped to the range of the training labels, because T^-1 diverges outside
        of T's range. With a number, results that leave the range by more raise an error instead.
        A mixture takes the range of train_labels, or else, in one dimension, of the held-out
        labels and its middle 99.8%.

    Examples:
        >>> balance = Rebalancer(train_labels).fit(val_pred, val_target)
        >>> balance(test_pred), balance.at(strength=0.5)(test_pred)
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        prior: Any = None,
        sigma: Any = None,
        power: float = 1.0,
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
        self.method, self.power, self.strength, self.bound = method, power, strength, bound
        self.criterion: Criterion = criterion
        self.given = sigma is not None
        self.active: bool | None = None  # None: no sigma yet; False: predictions stay as they are
        value = torch.as_tensor(math.nan if sigma is None else sigma, dtype=torch.float64)
        self.sigma = nn.Buffer(value.detach().clone())
        self.share = nn.Buffer(value.new_zeros(()))  # of the isotonic curve
        empty: Any = (nn.Buffer(value.new_empty(0)) for _ in range(5))
        self.x, self.m, self.isotonic_x, self.isotonic_m, self.log_p = empty
        self.ends = nn.Buffer(torch.tensor(ANYWHERE, dtype=torch.float64))
        checks.check_settings(self)
        self.prior: Any = None
        if prior is not None:
            self._set_prior(prior)
            if method == "theorem":
                self._tabulate()

    @property
    def dims(self) -> int:
        return self.prior.means.shape[-1] if isinstance(self.prior, GaussianMixture) else 1

    @property
    def balances(self) -> bool:
        """Whether Theorem 1 changes predictions, if sigma is not 0."""
        return self.strength > 0 and self.power > 0 and not isinstance(self.prior, Flat)

    def fit(
        self,
        pred: ArrayLike | Tensor,
        target: ArrayLike | Tensor,
        train_labels: ArrayLike | Tensor | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Choose sigma (unless given) and the isotonic curve on held-out predictions and labels,
        (N,) or (N, D). Without effect for a Histogram or a Categorical.

        The held-out labels may be distributed differently from the training labels. train_labels
        (L,) or (L, D): the label range, and the prior if none was given.
        """
        x, y = as_array(pred), as_array(target)
        labels = None if train_labels is None else as_array(train_labels)
        if self.prior is None:
            if labels is None:
                raise ValueError("Rebalancer needs a prior; give one, or fit(..., train_labels).")
            self._set_prior(labels)
        if self.logits is not None or isinstance(self.prior, Flat):
            return self
        checks.check_labels(self, labels)
        x, y = (a[:, None] if a.ndim == 1 else a for a in (x, y))
        weight = np.ones(len(y)) if sample_weight is None else as_array(sample_weight)
        if sample_weight is not None:
            x, y, weight = (a[fitting.significant(weight, len(y))] for a in (x, y, weight))
        helps = checks.can_help(self, x, y)
        if labels is not None or (self.dims == 1 and isinstance(self.prior, GaussianMixture)):
            self.ends = range_of(self.prior, labels, held_out=y)
        if helps:
            fitting.fit_curves(self, x, y, weight)
        else:
            self.sigma, self.share = torch.zeros(2, dtype=torch.float64)
        self._tabulate()
        return self

    def forward(self, pred: Any, sigma: Any = None) -> Any:
        """Return balanced predictions; for a Histogram or a Categorical, logits (N, K) -> (N,)."""
        if not isinstance(pred, Tensor):
            kind = np.asarray(pred).dtype
            values = torch.tensor(np.asarray(pred, kind if kind.kind == "f" else np.float64))
            return self.forward(values.to(self.sigma.device), sigma).cpu().numpy()
        if self.logits is not None:
            return divided(self.logits, pred, self.strength * self.power * self.log_p)
        dtype = pred.dtype if pred.is_floating_point() else torch.float32
        values, readable = pred.to(self.sigma.dtype), is_readable(pred)
        checks.check_call(self, values, sigma)
        if not (self.active if sigma is None else self.balances) or (readable and not pred.numel()):
            return pred.to(dtype, copy=True)
        if sigma is not None or self.dims > 1:
            return self._solved(values, sigma).to(dtype)
        x, m, inside = self.x, self.m, values.clamp(self.x[0], self.x[-1])
        if self.bound is not None and readable and self.method == "theorem":
            checks.refuse(self, (inside != values).any())
        if readable and not values.requires_grad:  # the same, faster
            return torch.from_numpy(np.asarray(np.interp(values, x, m))).to(dtype)
        k = torch.searchsorted(x, inside.detach().contiguous()).clamp(1, len(x) - 1)
        slope = (m[1:] - m[:-1]) / (x[1:] - x[:-1])
        return (m[k - 1] + (inside - x[k - 1]) * slope[k - 1]).to(dtype)

    def _solved(self, values: Tensor, sigma: Any) -> Tensor:
        """Newton's method, for several dimensions or one sigma per sample."""
        rows = values.reshape(-1, 1) if self.dims == 1 else values
        noise = self.sigma if sigma is None else torch.as_tensor(sigma).to(rows)
        if sigma is not None and (self.dims == 1 or noise.ndim < 2):
            noise = noise.reshape(-1, 1)
        checks.check_rows(self, rows, noise)
        ends = self._range() if self.dims == 1 else ANYWHERE
        least = 1e-3 * noise.amax().clamp(min=1e-3)  # instead of 0, whose result is known
        prior = tempered(self.prior, self.power)
        m = inverse.solve(prior, noise.where(noise > 0, least), self.strength, rows, ends)
        m = torch.where(noise > 0, m, rows)
        limited = m.clamp(*self.ends)
        if self.bound is not None and is_readable(m):
            checks.refuse(self, ((m - limited).abs() > self.bound).any())
            limited = m
        return limited.reshape(values.shape)

    def at(self, **dials: Any) -> "Rebalancer":
        """Return a copy with another `strength`, `power` or `sigma`."""
        if unknown := dials.keys() - {"strength", "power", "sigma"}:
            raise TypeError(f"Unknown dials {unknown}; choose from strength, power, sigma.")
        if self.method != "theorem" and dials.keys() & {"power", "sigma"}:
            raise ValueError("power and sigma are set before an isotonic fit; use strength.")
        other = copy.deepcopy(self)
        if "sigma" in dials:
            dials["sigma"] = torch.as_tensor(dials["sigma"]).to(self.sigma)
        for name, value in dials.items():
            setattr(other, name, value)
        checks.check_settings(other)
        other._tabulate()
        return other

    def curve(self, sigma: float, nodes: int = NODES, plain: bool = False) -> Curve:
        """Return T's curve for this sigma; `plain`: of Theorem 1, whatever the dials, and so far
        beyond the label range that the noise of no label is cut off.
        """
        prior, (low, high) = copy.deepcopy(self.prior).cpu(), self._range()
        prior = prior if plain else tempered(prior, self.power)
        ends = (low - 3 * sigma, high + 3 * sigma) if plain else (low, high)
        strength = 1.0 if plain else self.strength
        return inverse.curve(
            prior, inverse.noise(self.kind, sigma), self.point, strength, ends, nodes
        )

    def _set_prior(self, given: Any) -> None:
        self.prior = given if self.logits is not None else as_prior(given)
        if self.logits is not None:
            self.log_p = log_frequencies(self.logits, given)
        else:
            labels = as_array(given) if self.prior is not given and self.dims > 1 else None
            self.ends = range_of(self.prior, labels)

    def _range(self) -> Ends:
        low, high = self.ends.tolist()
        return low - (self.bound or 0.0), high + (self.bound or 0.0)

    def _tabulate(self) -> None:
        """Tabulate the curve: Theorem 1's and the isotonic one, mixed by `share`."""
        checks.check_sigma(self)
        self._activate()
        self.x = self.m = self.sigma.new_empty(0)
        if self.active and self.dims == 1 and self.logits is None:
            self.x, self.m = (t.to(self.sigma) for t in fitting.joined(self))

    def _activate(self) -> None:
        """Set `active` now, because a compiler cannot read buffers."""
        idle, share = not self.balances or not self.sigma.any(), float(self.share)
        self.active = not (self.strength == 0 or (idle and share == 0))
        if self.active and share == 0 and self.sigma.isnan().any():
            self.active = None

    def get_extra_state(self) -> dict[str, Any]:
        """The dials, and the kind of the prior."""
        about = {"prior": type(self.prior).__name__, "count": getattr(self.prior, "count", None)}
        return {name: getattr(self, name) for name in DIALS} | about

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """`_load_from_state_dict` reads it first."""

    def _load_from_state_dict(self, state_dict, prefix, *others):  # pyright: ignore
        """Take over the dials and, if this has none, the prior. Buffers take the state's size."""
        about = state_dict.get(f"{prefix}_extra_state", {})
        for name in about.keys() & set(DIALS):
            setattr(self, name, about[name])
        if self.prior is None and self.logits is None and about:
            self.prior = restored(about, state_dict, f"{prefix}prior.")
        for name in self._buffers:
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *others)
        self._activate()
