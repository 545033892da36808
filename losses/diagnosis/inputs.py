"""Check of the numbers given to `diagnose`."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

LARGEST = 1e37  # label


def numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return (N,) finite numbers, or raise an error that names the others."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        given = np.asarray(values)
        if given.dtype.kind in "cmM":
            raise TypeError(f"got {given.dtype}")
        found = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be real numbers: {error}") from None
    if found.size != (count := found.shape[0] if found.ndim else 1):
        raise ValueError(
            f"expected one label dimension, got {found.size // max(count, 1)}; diagnose each "
            "column separately, or call leverage(labels, pred, target) for held-out predictions"
        )
    found = found.reshape(-1)
    if (bad := np.flatnonzero(~np.isfinite(found))).size:
        raise ValueError(
            f"{name} must be finite; {len(bad)} are missing or infinite, first in row {bad[0]}. "
            "Drop these rows."
        )
    if not (np.abs(found) < LARGEST).all():
        raise ValueError(
            f"{name} reach {np.abs(found).max():.0e}, keep them below {LARGEST:.0e}: losses are "
            "computed in float32. Give them in another unit."
        )
    return found
