"""Errors on one-dimensional labels that give weight to rare labels: averages over equally wide
ranges of the label, and relevance.

N: samples.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

RANGES = 10


def rare_report(pred: ArrayLike, target: ArrayLike, train_labels: ArrayLike) -> dict[str, float]:
    """rmse; bmae and brmse, averaged over ten equally wide ranges of the training labels; sera.

    SERA (Ribeiro and Moniz, 2020) integrates the squared error of labels of relevance t or more
    over t from 0 to 1, which is the sum of relevance times squared error; here it is the mean.
    """
    p, y = (np.asarray(a, dtype=np.float64).ravel() for a in (pred, target))
    if p.shape != y.shape or not len(y):
        raise ValueError(f"expected as many predictions as targets, got {p.shape} and {y.shape}")
    train = np.asarray(train_labels, dtype=np.float64).ravel()
    error = np.abs(p - y)
    edges = np.linspace(train.min(), train.max(), RANGES + 1)
    bins = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, RANGES - 1)
    present = np.unique(bins)
    mse = np.mean([np.mean(error[bins == k] ** 2) for k in present])
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "bmae": float(np.mean([error[bins == k].mean() for k in present])),
        "brmse": float(np.sqrt(mse)),
        "sera": float(np.mean(relevance(y, train) * error**2)),
    }


def relevance(labels: NDArray, train_labels: NDArray) -> NDArray[np.float64]:
    """(N,) in [0, 1]: 0 at the median of the training labels, 1 beyond the whiskers of their box
    plot, cubic in between. A side without outliers is 0, unless both sides have none.
    """
    low, median, high = np.quantile(train_labels, [0.25, 0.5, 0.75])
    reach = 1.5 * (high - low)
    inside = train_labels[(train_labels >= low - reach) & (train_labels <= high + reach)]
    below, above = train_labels.min() < inside.min(), train_labels.max() > inside.max()
    found = np.zeros(len(labels))
    for side, end, outliers in ((-1, inside.min(), below), (1, inside.max(), above)):
        if outliers or not (below or above):
            far = side * (labels - median)
            t = np.clip(far / max(side * (end - median), 1e-300), 0, 1)
            found = np.where(far > 0, 3 * t**2 - 2 * t**3, found)
    return found
