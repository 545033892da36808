"""A short version of the campaign of faults; `make faults` replays the whole one."""

import multiprocessing
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests import process
from tests.faults.bench import Bench
from tests.faults.campaign import catalogue

QUICK = [fault for fault in catalogue(1) if fault.quick]


def test_there_are_enough():
    faults = catalogue(30)
    assert len(faults) >= 150
    assert len({fault.kind for fault in faults}) == 7
    assert len({(fault.kind, fault.name) for fault in faults}) == len(faults)


@pytest.fixture(scope="module")
def campaign() -> Iterator[Connection]:
    """A process for the workbench: its scripts are forks of it, and torch does not train in a fork
    of a process that has trained itself, as other tests do here."""
    ours, theirs = multiprocessing.Pipe()
    running = process.start(act, theirs)
    yield ours
    ours.send(None)
    running.join()


def act(wanted: Connection) -> None:
    """Each fault that is asked for, {number, folder}: {what happened, lost, good}."""
    for number, folder in iter(wanted.recv, None):
        try:
            wanted.send(QUICK[number].act(Bench(folder)))
        except BaseException:
            wanted.send((traceback.format_exc(), False, False))


@pytest.mark.parametrize(
    "number", range(len(QUICK)), ids=lambda i: f"{QUICK[i].kind}: {QUICK[i].name}"
)
def test_fault(number: int, campaign: Any, tmp_path: Path):
    campaign.send((number, tmp_path / "bench"))
    assert campaign.poll(240), "no answer in four minutes"
    happened, lost, good = campaign.recv()
    assert good, happened
    assert not lost, happened
