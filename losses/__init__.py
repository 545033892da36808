"""Theorem 1 of Balanced MSE as composable losses: `BalancedLoss(likelihood, prior)`."""

from losses.balanced import BMC, BNI, GAI, BalancedLoss
from losses.categorical import Categorical, Histogram
from losses.likelihoods import Gaussian, GaussianKernel
from losses.mixture import GaussianMixture
from losses.priors import Batch, Bins, Classes, Flat
from losses.reweight import WeightedLoss
from losses.robust import Huber, Laplace
from losses.structured import Product, Subspace

__all__ = [
    "BMC",
    "BNI",
    "GAI",
    "BalancedLoss",
    "Batch",
    "Bins",
    "Categorical",
    "Classes",
    "Flat",
    "Gaussian",
    "GaussianKernel",
    "GaussianMixture",
    "Histogram",
    "Huber",
    "Laplace",
    "Product",
    "Subspace",
    "WeightedLoss",
]
