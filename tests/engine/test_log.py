"""What a run tells ends with the run, however it ends."""

import threading
from pathlib import Path

import pytest

from engine import log


def test_a_signal_in_the_midst_of_tensorboard_does_not_hang(tmp_path: Path, monkeypatch):
    """A signal can leave TensorBoard's queue such that its close() waits for ever."""
    monkeypatch.setattr(log, "PATIENCE", 0.1)
    told, never = log.Log(tmp_path, True), threading.Event()
    assert told.writer is not None
    real = told.writer.close
    monkeypatch.setattr(told.writer, "close", never.wait)

    def stopped() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            told.close()

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert not told.logger.handlers
    never.set()
    real()
