"""Boosting that starts from the predictions of the plain model."""

import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from . import Objective

# argument of the first predictions, and the default learning rate
STARTS = {"lightgbm": ("init_score", 0.1), "xgboost": ("base_margin", 0.3)}


class BalancedBooster(RegressorMixin, BaseEstimator):
    """Train `booster` twice: as it is (with its L2 loss), then with the balanced `objective`,
    starting from the plain predictions (LightGBM's `init_score`, XGBoost's `base_margin`). The
    objective gets the booster's learning rate.

    Needed where labels form clusters that are more than about ten sigma apart: between two clusters
    the balanced loss is so curved that trees which start from the mean hardly learn. Also where no
    split may be possible: LightGBM then predicts 0 for a custom objective, but the mean here.

    Example:
        >>> f = objective(Gaussian(sigma=5.0), Bins.fit(ages, np.arange(-0.5, 122)))
        >>> model = BalancedBooster(LGBMRegressor(n_estimators=200), f).fit(x, ages)
    """

    def __init__(self, booster: Any, objective: "Objective"):
        self.booster, self.objective = booster, objective

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """X (N, F), y (N,), or (N, D) with XGBoost, sample_weight (N,)."""
        libraries = (each.__module__.split(".")[0] for each in type(self.booster).__mro__)
        found = next((STARTS[name] for name in libraries if name in STARTS), None)
        if found is None:
            raise TypeError(f"expected an LGBMRegressor or an XGBRegressor, got {self.booster!r}")
        objective = copy.copy(self.objective)
        objective.known, (self.start_, rate) = None, found
        objective.learning_rate = self.booster.learning_rate or rate
        plain: Any = clone(self.booster)
        balanced: Any = clone(self.booster).set_params(objective=objective)  # pyright: ignore
        self.plain_ = plain.fit(X, y, sample_weight=sample_weight)
        start, self.balanced_ = self.plain_.predict(X), None
        if np.ptp(start, axis=0).any():  # LightGBM fails without any usable input
            first = {self.start_: start}
            self.balanced_ = balanced.fit(X, y, sample_weight=sample_weight, **first)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """(N, F) -> (N,) or (N, D)."""
        check_is_fitted(self)
        plain = self.plain_.predict(X)
        if self.balanced_ is None:
            return plain
        if self.start_ == "base_margin":
            return self.balanced_.predict(X, base_margin=plain)
        return plain + self.balanced_.predict(X)
