"""All tests of this folder are marked `faults`; those marked `quick` run in `make test`, too."""

from pathlib import Path

import pytest

from tests.faults.bench import Bench


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("faults")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "bench")


@pytest.fixture
def fresh(tmp_path: Path) -> Bench:
    """A second bench, for the same runs without the fault."""
    return Bench(tmp_path / "fresh")
