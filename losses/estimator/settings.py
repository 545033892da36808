"""What a user may say to `BalancedRegressor`, checked before anything is trained."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ..likelihoods import Likelihood
from ..priors import Prior

LikelihoodName = Literal["gaussian", "laplace", "huber", "histogram"]
PriorName = Literal["auto", "flat", "bins", "mixture"]


def check(said: Mapping[str, Any], tempers: bool) -> None:
    """Refuse what only the estimator can be told wrongly; the losses check their own. `tempers`:
    whether the prior can be tempered.
    """
    for name, low in (("sigma", 0), ("power", -1e-12)):
        value = said[name]
        if value != "auto" and not (_is_number(value) and value > low):
            raise ValueError(f'{name} is a positive number or "auto", got {value!r}')
    kinds = {"likelihood": (LikelihoodName, Likelihood), "prior": (PriorName, Prior)}
    for name, (known, kind) in kinds.items():
        value = said[name]
        if not isinstance(value, kind) and value not in known.__args__:
            raise ValueError(
                f"{name} is one of {', '.join(known.__args__)}, got {value!r}; or an instance "
                f"of a {kind.__name__}."
            )
    if said["power"] not in ("auto", 1, 1.0) and not tempers:
        raise ValueError(f"only prior='bins' can be tempered, got power={said['power']}")
    if not 0 < said["validation_fraction"] < 1:
        raise ValueError(f"validation_fraction is in (0, 1), got {said['validation_fraction']}")
    if not _is_number(said["alpha"]) or not said["alpha"] >= 0:
        raise ValueError(f"alpha is a number from 0 on, got {said['alpha']!r}")
    if not _is_count(said["max_iter"]):
        raise ValueError(f"max_iter is a whole number from 1 on, got {said['max_iter']!r}")
    widths = said["hidden"]
    if isinstance(widths, str) or not np.iterable(widths) or not all(map(_is_count, widths)):
        raise ValueError(
            f"hidden is a sequence of widths, such as (32,), or () for a linear model; got "
            f"{widths!r}"
        )


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return bool(number and np.isfinite(value))


def _is_count(value: Any) -> bool:
    count = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return bool(count and value >= 1)
