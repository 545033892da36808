"""Boosting that starts from the predictions of the plain model."""

import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from . import Objective

DEFAULTS = {"lightgbm": 0.1, "xgboost": 0.3}  # learning rates


class BalancedBooster(RegressorMixin, BaseEstimator):
    """Train `booster` twice: as it is (with its L2 loss), then with the balanced `objective`,
    starting from the plain predictions (LightGBM's `init_score`, XGBoost's `base_margin`). The
    objective gets the booster's learning rate.

    Needed where labels form clusters that are more than about ten sigma apart: between two clusters
    the balanced loss is so curved that trees which start from the mean hardly learn. Also where no
    split may be possible: LightGBM then predicts 0 for a custom objective, but the mean here.

    Examples:
        >>> f = objective(Gaussian(sigma=5.0), Bins.fit(ages, np.arange(-0.5, 122)))
        >>> model = BalancedBooster(LGBMRegressor(n_estimators=200), f).fit(x, ages)
    """

    def __init__(self, booster: Any, objective: "Objective"):
        self.booster, self.objective = booster, objective

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """X (N, F), y (N,), or (N, D) with XGBoost, sample_weight (N,)."""
        if self._start not in ("init_score", "base_margin"):
            raise TypeError(f"expected an LGBMRegressor or an XGBRegressor, got {self.booster!r}")
        objective = copy.copy(self.objective)
        objective.known = objective.first_move = None  # of an earlier training
        library = type(self.booster).__module__.split(".")[0]
        objective.learning_rate = self.booster.learning_rate or DEFAULTS[library]
        plain: Any = clone(self.booster)
        balanced: Any = clone(self.booster).set_params(objective=objective)  # pyright: ignore
        self.plain_ = plain.fit(X, y, sample_weight=sample_weight)
        start = {self._start: self.plain_.predict(X)}
        self.balanced_ = None
        if np.ptp(start[self._start], axis=0).any():  # LightGBM fails without any usable input
            self.balanced_ = balanced.fit(X, y, sample_weight=sample_weight, **start)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """(N, F) -> (N,) or (N, D)."""
        check_is_fitted(self)
        plain = self.plain_.predict(X)
        if self.balanced_ is None:
            return plain
        if self._start == "base_margin":
            return self.balanced_.predict(X, base_margin=plain)
        return plain + self.balanced_.predict(X)

    @property
    def _start(self) -> str:
        names = {"LGBMRegressor": "init_score", "XGBRegressor": "base_margin"}
        return next(
            (names[c.__name__] for c in type(self.booster).__mro__ if c.__name__ in names), ""
        )
