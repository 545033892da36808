"""Learning-rate factors as plain functions of the time passed, in epochs (a real number)."""

import math
from collections.abc import Sequence


def constant(epoch: float, epochs: int) -> float:
    """1, always."""
    return 1.0


def steps(epoch: float, epochs: int, milestones: Sequence[float], gamma: float) -> float:
    """Times gamma at each milestone."""
    return gamma ** sum(int(epoch) >= milestone for milestone in milestones)


def cosine(epoch: float, epochs: int, warmup: float = 0.0) -> float:
    """A linear rise over `warmup` epochs, then half a cosine down to zero."""
    if epoch < warmup:
        return max(epoch, 1e-3) / warmup
    passed = (epoch - warmup) / max(epochs - warmup, 1e-9)
    return 0.5 * (1 + math.cos(math.pi * min(passed, 1.0)))
