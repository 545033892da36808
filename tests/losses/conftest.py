"""Fixtures of the losses' tests."""

import pytest

from losses import fast
from losses.fast import chunks, fused

SHARE = 16  # of the rows


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> int:
    """The sizes from which the fast losses go other ways, 16 times smaller: a batch prior costs the
    square of its rows, and with 16 times fewer of them it goes the same ways."""
    for module in (fast, fused):
        monkeypatch.setattr(module, "FEW_ROWS", module.FEW_ROWS // SHARE)
    for module in (fast, chunks, fused):
        monkeypatch.setattr(module, "NUMBERS", module.NUMBERS // SHARE)
    return SHARE
