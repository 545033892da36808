"""The depth benchmark measures what it says; how fast things are is for the benchmark to say."""

from scripts.benchmark_depth import loaders, loss_share


def test_both_loaders_and_a_loss_are_measured():
    rates = loaders(frames=2, rounds=1)
    assert set(rates) == {"ours", "plain"}
    assert min(rates.values()) > 0
    taken = loss_share("gai", depth=18, batch=1, steps=1)
    assert 0 < taken["loss"] < taken["step"]
