"""Fixtures of the losses' tests."""

import pytest

from losses import fast
from losses.fast import mean

SHARE = 16


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> int:
    """Divide the sizes at which the fast paths start by 16: a batch prior costs N^2."""
    for module, name in ((fast, "FEW"), (mean, "FEW"), (fast, "NUMBERS")):
        monkeypatch.setattr(module, name, getattr(module, name) // SHARE)
    return SHARE
