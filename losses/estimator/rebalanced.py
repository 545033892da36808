"""Post-hoc balancing as a scikit-learn meta-estimator, in the style of CalibratedClassifierCV.

N: samples; D: label dimensions.
"""

import numbers
import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import utils
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils import validation

from ..posthoc import Rebalancer
from ..posthoc.fitting import significant
from ..posthoc.labels import as_prior


class RebalancedRegressor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Any regressor, with balanced predictions.

    fit trains the regressor on all samples and fits one `Rebalancer` per label dimension on
    out-of-fold predictions. predict takes the dials of `Rebalancer.at`:
    `predict(X, strength=0.5)`; strength 0 gives the predictions of the regressor itself.

    estimator: a regressor; None: least squares. cv: number of folds, or a splitter of scikit-learn.
    The others are settings of `Rebalancer`. criterion: the balanced metric that sigma minimises; it
    keeps the plain predictions where they are the best.

    After fit: `estimator_`, `rebalancers_` (D,), `sigma_` (D,).

    Examples:
        >>> model = RebalancedRegressor(HistGradientBoostingRegressor()).fit(X, y)
    """

    def __init__(
        self,
        estimator: Any = None,
        cv: Any = 5,
        *,
        strength: float = 1.0,
        power: float = 1.0,
        method: Literal["theorem", "isotonic", "blend"] = "theorem",
        likelihood: Literal["gaussian", "laplace", "huber"] = "gaussian",
        point: Literal["mean", "median"] | None = None,
        criterion: Literal["bmae", "brmse", "nll"] = "bmae",
        random_state: Any = 0,
    ):
        self.estimator, self.cv, self.strength, self.power = estimator, cv, strength, power
        self.method, self.likelihood, self.point = method, likelihood, point
        self.criterion, self.random_state = criterion, random_state

    def __sklearn_tags__(self):
        tags, own = super().__sklearn_tags__(), utils.get_tags(self._plain())
        tags.target_tags.multi_output = own.target_tags.multi_output
        tags.input_tags = own.input_tags
        return tags

    def _plain(self) -> Any:
        return clone(LinearRegression() if self.estimator is None else self.estimator)

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """X as the regressor takes it, y (N,) or (N, D), sample_weight (N,)."""
        validation.validate_data(self, X, y, skip_check_array=True)
        given: Any = {"dtype": "float64", "input_name": "y", "estimator": self}
        y = utils.check_array(y, ensure_2d=False, ensure_min_samples=2, **given)
        X, y = utils.indexable(X, y)
        weight, params, cv = np.ones(len(y)), {}, self.cv
        if sample_weight is not None:
            weight = validation._check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
            if cv is None or isinstance(cv, numbers.Integral):  # else its indices are of all rows
                kept = significant(weight, len(y))
                X, y, weight = utils._safe_indexing(X, kept), y[kept], weight[kept]
            if validation.has_fit_parameter(self._plain(), "sample_weight"):
                params = {"sample_weight": weight}
            else:
                name = type(self._plain()).__name__
                warnings.warn(
                    f"{name}.fit takes no sample_weight; the weights are used for balancing only.",
                    stacklevel=2,
                )
        self.estimator_ = self._plain().fit(X, y, **params)
        if isinstance(cv, numbers.Integral):
            cv = KFold(min(int(cv), len(y)), shuffle=True, random_state=self.random_state)
        pred: Any = cross_val_predict(self._plain(), X, y, cv=cv, params=params)
        columns = zip(np.reshape(pred, (len(y), -1)).T, np.reshape(y, (len(y), -1)).T, strict=True)
        self.rebalancers_ = [self._rebalancer(p, t, weight) for p, t in columns]
        self.sigma_ = np.array([float(r.sigma) for r in self.rebalancers_])
        return self

    def _rebalancer(self, pred: NDArray, y: NDArray, weight: NDArray) -> Rebalancer:
        if np.ptp(y) == 0:  # nothing to balance
            return Rebalancer(y, sigma=0.0)
        names = ("power", "strength", "likelihood", "point", "method", "criterion")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        return Rebalancer(as_prior(y, weight), **settings).fit(pred, y, sample_weight=weight)

    def predict(self, X: Any, **dials: float) -> NDArray[np.float64]:
        """Return (N,) or (N, D); dials: strength, power or sigma, instead of the fitted ones."""
        validation.check_is_fitted(self)
        plain = np.asarray(self.estimator_.predict(X), dtype=np.float64)
        validation.validate_data(self, X, reset=False, skip_check_array=True)
        used = [r.at(**dials) for r in self.rebalancers_] if dials else self.rebalancers_
        columns = zip(used, plain.reshape(len(plain), -1).T, strict=True)
        return np.stack([r(column) for r, column in columns], -1).reshape(plain.shape)
