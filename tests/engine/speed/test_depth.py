"""The depth benchmark measures what it says; how fast things are is for the benchmark to say."""

import pytest
import torch

from engine.speed import depth as benchmark_depth


def test_both_loaders_are_measured():
    rates = benchmark_depth.loaders(frames=2, rounds=1)
    assert set(rates) == {"ours", "plain"}
    assert min(rates.values()) > 0


def test_every_loss_is_a_part_of_its_step(monkeypatch: pytest.MonkeyPatch):
    def maps(batch: int, width: int):
        return torch.rand(batch * 100, width).requires_grad_(), 0.7 + 9 * torch.rand(batch * 100, 1)

    monkeypatch.setattr(benchmark_depth, "maps", maps)
    monkeypatch.setattr(benchmark_depth, "step_seconds", lambda *args: 1.0)
    shares = benchmark_depth.shares(depth=18, batch=1, steps=1)
    assert list(shares) == list(benchmark_depth.ROWS)
    assert all(0 < taken["loss"] < taken["step"] for taken in shares.values())
