"""Log of a run: TensorBoard events, train.log, a progress bar, and wandb or MLflow if asked for.

Only rank zero writes; the `Log` of another rank does nothing, so the loop need not ask.
"""

import contextlib
import functools
import importlib
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from engine.cli import targets

CLOSE_TIMEOUT = 3  # seconds for TensorBoard to write its queue when a run is interrupted
SERVICES = {"wandb": "WandbLogger", "mlflow": "MLFlowLogger"}  # of pytorch_lightning.loggers
HPARAMS = ("seed", "row", "preset", "freeze_bn", "loss", "model", "optim", "trainer", "features")


def print_message(text: str) -> None:
    """Print a line to stderr without breaking a progress bar."""
    tqdm.write(text, file=sys.stderr)


class Log:
    """TensorBoard and train.log of one run folder.

    purge_step: drop the events from this step on, as a resumed run writes them again.
    service: a logger of Lightning that receives the numbers and settings, too.
    """

    def __init__(
        self, folder: Path, active: bool, purge_step: int | None = None, service: Any = None
    ):
        self.path, self.active, self.service = folder / "train.log", active, service
        self.bar, self.board, self.writer = tqdm(disable=True), None, None
        if active:
            self.board = TensorBoardLogger(folder, "", "", purge_step=purge_step)
            self.writer: Any = self.board.experiment
            file = self.writer._get_file_writer().event_writer._async_writer._writer._writer
            for name in ("write", "flush", "close"):  # a full disk stops the curves, not the run
                setattr(file, name, functools.partial(_quietly, getattr(file, name)))

    def info(self, message: str) -> None:
        """Print a message and append it to train.log; a full disk does not stop the run."""
        if self.active:
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}"
            tqdm.write(line, file=sys.stderr)
            with contextlib.suppress(OSError), self.path.open("a") as file:
                file.write(f"{line}\n")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for logger in (self.board, self.service):
            if logger is not None and values:
                logger.log_metrics(dict(values), step)

    def end(self, cfg: DictConfig, about: Mapping, test: dict[str, float], step: int) -> None:
        """Log the config and the commit as text, the test metrics, and TensorBoard's table of
        settings with these metrics; about: as engine.runs.records.meta returns it."""
        if self.board is None or self.writer is None:
            return
        text = OmegaConf.to_yaml(cfg, resolve=True)
        self.writer.add_text("config", textwrap.indent(text, "    "))
        self.writer.add_text("commit", f"{about['commit']}{', changed' * about['changed']}")
        plain = targets.plain(cfg)
        settings = {name: plain[name] for name in HPARAMS}
        settings["dataset"] = f"{cfg.benchmark.dataset}{cfg.paths.suffix}"
        self.board.log_hyperparams(settings, test, step)
        if self.service is not None:
            self.service.log_metrics(test, step)
            self.service.log_hyperparams({**settings, "commit": about["commit"]})

    def close(self) -> None:
        self.bar.close()
        if self.service is not None:
            self.service.finalize("failed" if sys.exc_info()[1] else "success")
            getattr(self.service.experiment, "finish", int)()  # wandb has one run per process
        if self.writer is not None:
            closing = threading.Thread(target=self.writer.close, daemon=True)
            closing.start()
            # A signal may have interrupted TensorBoard's queue; then close() would never return.
            interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
            closing.join(CLOSE_TIMEOUT if interrupted else None)


def service(cfg: DictConfig, folder: Path) -> Any:
    """Return the logger of log=wandb or log=mlflow."""
    name = cfg.log.service
    try:
        importlib.import_module(name)
        logger = getattr(importlib.import_module("pytorch_lightning.loggers"), SERVICES[name])
    except ModuleNotFoundError as error:
        packages = f"pytorch-lightning {name}"
        raise ModuleNotFoundError(
            f"log={name} needs {error.name}, which is not installed: pip install {packages}"
        ) from error
    run = f"{cfg.name}/{cfg.preset}/{folder.name}"
    if name == "wandb":  # not in the run folder: it makes links, which are refused there
        return logger(project=cfg.log.project, name=run, save_dir=cfg.paths.outputs)
    database = (Path(cfg.paths.outputs) / "mlflow.db").resolve()
    uri = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    return logger(experiment_name=cfg.log.project, run_name=run, tracking_uri=uri)


def _quietly(call: Callable[..., Any], *arguments: Any) -> None:
    with contextlib.suppress(OSError):
        call(*arguments)


def label_figures(loop: Any, test: Mapping[str, NDArray]) -> dict[str, Figure]:
    """Plot the histograms of training labels and predictions, in label dimension 0, and, if the
    inputs are images, some of them, each with its predicted (true) label.

    test: pred (N, D), target (N, D) and index (N,) of the test split, or nothing.
    """
    if not test:
        return {}
    pred, labels = test["pred"][:, 0], loop.labels[:, 0]
    low, high = float(min(labels.min(), pred.min())), float(max(labels.max(), pred.max()))
    edges = np.linspace(low, high if high > low else low + 1, 61).tolist()
    figures = {"labels": Figure(figsize=(6, 4))}
    ax = figures["labels"].add_subplot()
    ax.hist(labels, edges, density=True, color="0.75", label="training labels")
    ax.hist(pred, edges, density=True, histtype="step", color="#0072B2", label="predictions")
    ax.set(xlabel="label", ylabel="density")
    ax.legend()
    some = np.linspace(0, len(pred) - 1, min(8, len(pred))).astype(int)
    inputs = [loop.images[int(index)]["input"] for index in test["index"][some]]
    if not all(one.ndim == 3 and len(one) == 3 for one in inputs):
        return figures
    figures["samples"] = Figure(figsize=(1.5 * len(some), 2))
    for place, (i, one) in enumerate(zip(some, inputs, strict=True), start=1):
        image = one.float().cpu().numpy().transpose(1, 2, 0)
        span = image.max() - image.min()
        ax = figures["samples"].add_subplot(1, len(some), place)
        ax.imshow((image - image.min()) / (span if span > 0 else 1))
        ax.set_title(f"{pred[i]:.1f} ({test['target'][i, 0]:.1f})", fontsize=8)
        ax.axis("off")
    return figures
