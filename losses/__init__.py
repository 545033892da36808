"""Theorem 1 of Balanced MSE as composable losses: `BalancedLoss(likelihood, prior)`."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

MODULES = {  # imported when a name is first used
    "balanced": ("BMC", "BNI", "GAI", "BalancedLoss", "balanced_mse"),
    "categorical": ("Categorical", "Classes", "Histogram"),
    "diagnosis": ("diagnose", "leverage"),
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

if TYPE_CHECKING:  # the same for type checkers, which report unknown names
    from .balanced import BMC as BMC
    from .balanced import BNI as BNI
    from .balanced import GAI as GAI
    from .balanced import BalancedLoss as BalancedLoss
    from .balanced import balanced_mse as balanced_mse
    from .categorical import Categorical as Categorical
    from .categorical import Classes as Classes
    from .categorical import Histogram as Histogram
    from .diagnosis import diagnose as diagnose
    from .diagnosis import leverage as leverage
    from .estimator import BalancedRegressor as BalancedRegressor
    from .estimator.rebalanced import RebalancedRegressor as RebalancedRegressor
    from .heteroscedastic import Heteroscedastic as Heteroscedastic
    from .likelihoods import Gaussian as Gaussian
    from .mixture import GaussianMixture as GaussianMixture
    from .posthoc import Rebalancer as Rebalancer
    from .priors import Batch as Batch
    from .priors import Bins as Bins
    from .priors import Flat as Flat
    from .reweight import WeightedLoss as WeightedLoss
    from .robust import Huber as Huber
    from .robust import Laplace as Laplace
    from .structured import GaussianKernel as GaussianKernel
    from .structured import Product as Product
    from .structured import Subspace as Subspace
    from .uvote import UVOTE as UVOTE

    __version__: str
else:
    __all__ = sorted(name for names in MODULES.values() for name in names)

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return version("balanced-regression")
        for module, names in MODULES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__, "__version__"])
