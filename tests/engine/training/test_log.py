"""The log of a run closes, however the run ends."""

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.training import log


def test_an_interrupted_tensorboard_queue_does_not_block(tmp_path: Path, monkeypatch):
    """A signal can leave TensorBoard's queue in a state in which its close() never returns."""
    monkeypatch.setattr(log, "CLOSE_TIMEOUT", 0.1)
    one, never = log.Log(tmp_path, True), threading.Event()
    assert one.writer is not None
    real = one.writer.close
    monkeypatch.setattr(one.writer, "close", never.wait)

    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            one.close()

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    never.set()
    real()


@pytest.mark.parametrize("shape", [(10,), (3, 8), (1, 8, 8), (3, 8, 8)])
def test_only_images_are_plotted(shape: tuple[int, ...]):
    numbers = np.arange(4.0)[:, None]
    loop = SimpleNamespace(labels=numbers, images=[{"input": torch.zeros(shape)}] * 4)
    test = {"index": np.arange(4), "pred": numbers, "target": numbers}
    images = len(shape) == 3 and shape[0] == 3
    assert set(log.label_figures(loop, test)) == ({"labels", "samples"} if images else {"labels"})
