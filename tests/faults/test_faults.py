"""A short version of the campaign of faults; `make faults` replays the whole one."""

import pytest

from tests.faults.bench import Bench
from tests.faults.campaign import catalogue

QUICK = [fault for fault in catalogue(1) if fault.quick]


def test_there_are_enough():
    faults = catalogue(30)
    assert len(faults) >= 150
    assert len({fault.kind for fault in faults}) == 7
    assert len({(fault.kind, fault.name) for fault in faults}) == len(faults)


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: f"{fault.kind}: {fault.name}")
def test_fault(fault, tmp_path):
    happened, lost, good = fault.act(Bench(tmp_path / "bench"))
    assert good, happened
    assert not lost, happened
