"""Theorem 1 of Balanced MSE as composable losses: `BalancedLoss(likelihood, prior)`."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .balanced import BMC, BNI, GAI, BalancedLoss, balanced_mse
    from .categorical import Categorical, Classes, Histogram
    from .diagnosis import diagnose
    from .estimator import BalancedRegressor
    from .estimator.rebalanced import RebalancedRegressor
    from .heteroscedastic import Heteroscedastic
    from .likelihoods import Gaussian
    from .mixture import GaussianMixture
    from .posthoc import Rebalancer
    from .priors import Batch, Bins, Flat
    from .reweight import WeightedLoss
    from .robust import Huber, Laplace
    from .structured import GaussianKernel, Product, Subspace
    from .uvote import UVOTE

    __version__: str

MODULES = {  # imported when a name is first used
    "balanced": ("BMC", "BNI", "GAI", "BalancedLoss", "balanced_mse"),
    "categorical": ("Categorical", "Classes", "Histogram"),
    "diagnosis": ("diagnose",),
    "estimator": ("BalancedRegressor",),
    "estimator.rebalanced": ("RebalancedRegressor",),
    "heteroscedastic": ("Heteroscedastic",),
    "likelihoods": ("Gaussian",),
    "mixture": ("GaussianMixture",),
    "posthoc": ("Rebalancer",),
    "priors": ("Batch", "Bins", "Flat"),
    "reweight": ("WeightedLoss",),
    "robust": ("Huber", "Laplace"),
    "structured": ("GaussianKernel", "Product", "Subspace"),
    "uvote": ("UVOTE",),
}
__all__ = [  # a literal, for type checkers
    "BMC",
    "BNI",
    "GAI",
    "UVOTE",
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
    "RebalancedRegressor",
    "Rebalancer",
    "Subspace",
    "WeightedLoss",
    "balanced_mse",
    "diagnose",
]

if not TYPE_CHECKING:  # a type checker reports unknown names

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return version("balanced-regression")
        for module, names in MODULES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
