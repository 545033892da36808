"""Fixtures of the losses' tests."""

import pytest

from losses import balanced
from losses.fast import table

SHARE = 16


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> int:
    """Divide the sizes at which the fast paths start by 16: a batch prior costs N^2."""
    for module, name in ((balanced, "SMALL"), (table, "NUMBERS")):
        monkeypatch.setattr(module, name, getattr(module, name) // SHARE)
    return SHARE
