"""Theorem 1 of Balanced MSE as composable losses: `BalancedLoss(likelihood, prior)`."""

# ruff: noqa: F401
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .balanced import BMC, BNI, GAI, BalancedLoss, balanced_mse
    from .categorical import Categorical, Classes, Histogram
    from .diagnosis import diagnose
    from .estimator import BalancedRegressor
    from .heteroscedastic import Heteroscedastic
    from .likelihoods import Gaussian
    from .mixture import GaussianMixture
    from .posthoc import Rebalancer
    from .priors import Batch, Bins, Flat
    from .reweight import WeightedLoss
    from .robust import Huber, Laplace
    from .structured import GaussianKernel, Product, Subspace

MODULES = {  # imported when a name is first used
    "balanced": ("BMC", "BNI", "GAI", "BalancedLoss", "balanced_mse"),
    "categorical": ("Categorical", "Classes", "Histogram"),
    "diagnosis": ("diagnose",),
    "estimator": ("BalancedRegressor",),
    "heteroscedastic": ("Heteroscedastic",),
    "likelihoods": ("Gaussian",),
    "mixture": ("GaussianMixture",),
    "posthoc": ("Rebalancer",),
    "priors": ("Batch", "Bins", "Flat"),
    "reweight": ("WeightedLoss",),
    "robust": ("Huber", "Laplace"),
    "structured": ("GaussianKernel", "Product", "Subspace"),
}
__all__ = [name for names in MODULES.values() for name in names]  # pyright: ignore


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
