"""Theorem 1 of Balanced MSE as composable losses: `BalancedLoss(likelihood, prior)`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .balanced import BMC, BNI, GAI, BalancedLoss
from .categorical import Categorical, Histogram
from .heteroscedastic import Heteroscedastic
from .likelihoods import Gaussian, GaussianKernel
from .mixture import GaussianMixture
from .priors import Batch, Bins, Classes, Flat
from .reweight import WeightedLoss
from .robust import Huber, Laplace
from .structured import Product, Subspace

if TYPE_CHECKING:
    from .diagnosis import diagnose
    from .estimator import BalancedRegressor

__all__ = [
    "BMC",
    "BNI",
    "GAI",
    "BalancedLoss",
    "BalancedRegressor",
    "Batch",
    "Bins",
    "Categorical",
    "Classes",
    "Flat",
    "Gaussian",
    "GaussianKernel",
    "GaussianMixture",
    "Heteroscedastic",
    "Histogram",
    "Huber",
    "Laplace",
    "Product",
    "Subspace",
    "WeightedLoss",
    "diagnose",
]

LATE = {"BalancedRegressor": ".estimator", "diagnose": ".diagnosis"}  # what they import is slow


def __getattr__(name: str) -> Any:
    if name in LATE:
        return getattr(import_module(LATE[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
