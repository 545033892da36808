"""What a run tells ends with the run, however it ends."""

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.training import log


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


@pytest.mark.parametrize("shape", [(10,), (3, 8), (1, 8, 8), (3, 8, 8)])
def test_only_inputs_that_are_images_are_drawn(shape: tuple[int, ...]):
    numbers = np.arange(4.0)[:, None]
    loop = SimpleNamespace(labels=numbers, images=[{"input": torch.zeros(shape)}] * 4)
    test = {"index": np.arange(4), "pred": numbers, "target": numbers}
    images = len(shape) == 3 and shape[0] == 3
    assert set(log.label_figures(loop, test)) == ({"labels", "samples"} if images else {"labels"})
