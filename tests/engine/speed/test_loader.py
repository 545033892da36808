"""The loader benchmark measures every loader; how fast they are is for the benchmark to say."""

from engine.speed.loader import measure


def test_every_loader_is_measured():
    rates = measure(images=3, side=80, size=32, rounds=1)
    assert set(rates) == {"plain", "files", "files_augmented", "store", "store_augmented"}
    assert min(rates.values()) > 0
