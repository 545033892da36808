"""Check of the numbers given to `diagnose`."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

LARGEST = 1e37  # label


def numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return (N,) finite numbers, or raise an error that names the others."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    kind = getattr(values, "dtype", None)  # of an array, a series, an index
    if getattr(kind, "kind", "") in tuple("cmM"):
        raise ValueError(f"{name} must be real numbers, got {kind}")
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        texts = [v for v in np.asarray(values, dtype=object).ravel() if not _is_number(v)]
        example = f", such as {texts[0]!r}" if texts else ""
        raise ValueError(f"{name} must be numbers; {len(texts)} are not{example}") from None
    found = found.reshape(-1, 1) if found.ndim < 2 else found.reshape(len(found), -1)
    if found.shape[1] != 1:
        raise ValueError(
            f"expected one label dimension, got {found.shape[1]}; diagnose each column separately"
        )
    if not np.isfinite(found).all():
        bad = np.flatnonzero(~np.isfinite(found[:, 0]))
        raise ValueError(
            f"{name} must be finite; {len(bad)} are missing or infinite, first in row {bad[0]}. "
            "Drop these rows."
        )
    if not (np.abs(found) < LARGEST).all():
        raise ValueError(
            f"{name} reach {np.abs(found).max():.0e}, keep them below {LARGEST:.0e}: losses are "
            "computed in float32. Give them in another unit."
        )
    return found[:, 0]


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
