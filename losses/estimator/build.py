"""Losses of the estimator, from its settings.

`settings` is the estimator. D: label dimensions.
"""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..balanced import BalancedLoss
from ..categorical import Histogram
from ..likelihoods import Gaussian, Likelihood, Location
from ..mixture import GaussianMixture
from ..priors import Bins, Flat, Prior
from ..robust import Huber, Laplace
from .training import Data

BINS = 40  # of the label prior and of the histogram
COMPONENTS = 4  # of a mixture


def plain(settings: Any, data: Data) -> BalancedLoss:
    """Loss of the first training: least squares, or the plain histogram."""
    if settings.likelihood == "histogram" or isinstance(settings.likelihood, Likelihood):
        likelihood = _likelihood(settings, data, None)
        if not isinstance(likelihood, Location):
            return BalancedLoss(likelihood, Flat())
    return BalancedLoss(Gaussian(), Flat()).double()


def balanced(settings: Any, data: Data, sigma: Any, power: float) -> BalancedLoss:
    """sigma: (D,) in units of data; None: the likelihood's."""
    likelihood = _likelihood(settings, data, sigma)
    return BalancedLoss(likelihood, _prior(settings, data, likelihood, power)).double()


def _likelihood(settings: Any, data: Data, sigma: Any) -> Likelihood:
    if isinstance(settings.likelihood, Likelihood):
        return copy.deepcopy(settings.likelihood).double()
    if settings.likelihood == "histogram":
        ends = _edges(data, BINS)
        return Histogram(ends, float(ends[1] - ends[0] if sigma is None else sigma[0]))
    kinds = {"gaussian": Gaussian, "laplace": Laplace, "huber": Huber}
    scale = torch.tensor(sigma, dtype=torch.float64)
    scale, floor = scale[0] if (scale == scale[0]).all() else scale, float(scale.min()) / 2
    return kinds[settings.likelihood](scale, floor=floor)


def _prior(settings: Any, data: Data, likelihood: Likelihood, power: float) -> Prior:
    if isinstance(settings.prior, Prior):
        return copy.deepcopy(settings.prior).double()
    _, labels, weight = data
    if settings.prior == "flat":
        return Flat()
    if settings.prior == "mixture" or (settings.prior == "auto" and labels.shape[1] > 1):
        components = min(COMPONENTS, len(labels))
        even = bool((weight == weight[0]).all())
        return GaussianMixture.fit(
            labels.numpy(), components, sample_weight=None if even else weight.numpy()
        )
    if labels.shape[1] > 1:
        raise ValueError(
            f"Bins are one-dimensional, the labels have {labels.shape[1]} dimensions; "
            "use prior='mixture'."
        )
    if isinstance(likelihood, Histogram):  # as soft as its targets: no bin is empty
        centers = (likelihood.edges[1:] + likelihood.edges[:-1]).double() / 2
        return Bins(centers, weight @ likelihood.soft_target(labels), power)
    # so fine that the noise of neighbouring centers overlaps; a learned scale stays above the bins
    location = isinstance(likelihood, Location)
    scale = float(likelihood.value.detach().min()) if location else float(labels.std()) / 4
    reach = float(labels.max() - labels.min()) / scale
    least = 10 * BINS if likelihood.learned else BINS
    ends = _edges(data, int(np.clip(2 * reach, least, 10 * BINS)))
    counts, _ = np.histogram(labels[:, 0].numpy(), ends.numpy(), weights=weight.numpy())
    widths = ends.diff() if likelihood.learned else None
    return Bins((ends[1:] + ends[:-1]) / 2, torch.from_numpy(counts), power, widths)


def _edges(data: Data, bins: int) -> Tensor:
    low, high = data.ends[:, 0].tolist()
    return torch.linspace(low, high, bins + 1, dtype=torch.float64)
