"""The log of a run closes, however the run ends, and reaches wandb and MLflow."""

import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from engine.runs.run import run
from engine.training import log
from tests.engine.tiny import config


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


@pytest.mark.parametrize("name", log.SERVICES)
def test_numbers_and_settings_reach_a_service(name: str, faces: Path, tmp_path: Path, monkeypatch):
    cfg = config(faces, tmp_path, "imdb_wiki/vanilla", f"log={name}", "log.show=[mae]")
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning.loggers", None)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with pytest.raises(ModuleNotFoundError, match=f"log={name} needs .*pip install .* {name}"):
        run(cfg)
    kind = MagicMock()  # stands for a logger of Lightning
    loggers = SimpleNamespace(**{log.SERVICES[name]: kind})
    monkeypatch.setitem(sys.modules, "pytorch_lightning.loggers", loggers)
    done, logger, values = run(cfg), kind.return_value, {}
    for call in [*logger.log_metrics.call_args_list, *logger.log_hyperparams.call_args_list]:
        values |= call.args[0]
    assert "balanced-regression" in kind.call_args.kwargs.values()
    assert values["test/mae"] == pytest.approx(done["metrics"]["test/mae"])
    assert {"train/loss", "val/mae", "dataset", "commit", "seed"} <= set(values)
    logger.finalize.assert_called_once_with("success")
    logger.experiment.finish.assert_called_once_with()


@pytest.mark.parametrize("shape", [(10,), (3, 8), (1, 8, 8), (3, 8, 8)])
def test_only_images_are_plotted(shape: tuple[int, ...]):
    numbers = np.arange(4.0)[:, None]
    loop = SimpleNamespace(labels=numbers, images=[{"input": torch.zeros(shape)}] * 4)
    test = {"index": np.arange(4), "pred": numbers, "target": numbers}
    images = len(shape) == 3 and shape[0] == 3
    assert set(log.label_figures(loop, test)) == ({"labels", "samples"} if images else {"labels"})
