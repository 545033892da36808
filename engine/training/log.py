"""Log of a run: TensorBoard events, train.log, a progress bar, and wandb or MLflow if asked for.

Only rank zero writes; the `Log` of another rank does nothing, so the loop need not ask.
"""

import contextlib
import functools
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams
from tqdm import tqdm

from engine.cli import targets
from engine.cli.settings import leaves

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
        self.bar, self.writer = tqdm(disable=True), None
        if active:
            self.writer = SummaryWriter(str(folder), purge_step=purge_step)
            record = self.writer._get_file_writer().event_writer._async_writer._writer
            for name in ("write", "flush", "close"):  # a full disk stops the curves, not the run
                call = functools.partial(_quietly, getattr(record._writer, name))
                setattr(record._writer, name, call)

    def info(self, message: str) -> None:
        """Print a message and append it to train.log; a full disk does not stop the run."""
        if self.active:
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}"
            tqdm.write(line, file=sys.stderr)
            with contextlib.suppress(OSError), self.path.open("a") as file:
                file.write(f"{line}\n")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        if self.writer is not None:
            for key, value in values.items():
                self.writer.add_scalar(key, value, step)
        if self.service is not None and values:
            self.service.log_metrics(dict(values), step)

    def mesh(self, key: str, vertices: Tensor, triangles: Tensor, step: int) -> None:
        """Log (N, V, 3), (N, F, 3) for TensorBoard's mesh plugin."""
        if self.writer is not None:
            self.writer.add_mesh(key, vertices, faces=triangles, global_step=step)

    def settings(self, cfg: DictConfig, about: Mapping, metrics: Mapping[str, float]) -> None:
        """Log the config and the commit as text, and TensorBoard's table of settings, of which
        these metrics are columns; about: as engine.runs.provenance.meta returns it."""
        if self.writer is None:
            return
        plain: Any = targets.plain(cfg)
        found = dict(leaves({name: plain[name] for name in HPARAMS}))
        found |= {"dataset": f"{cfg.benchmark.dataset}{cfg.paths.suffix}"}
        flat = {
            key: value if isinstance(value, bool | int | float) else str(value)
            for key, value in found.items()
            if not isinstance(value, dict)
        }
        text = "".join(
            f"    {line}\n" for line in OmegaConf.to_yaml(cfg, resolve=True).splitlines()
        )
        self.writer.add_text("config", text)
        self.writer.add_text("commit", f"{about['commit']}{', changed' * about['changed']}")
        for summary in hparams(flat, dict(metrics)):  # add_hparams would log the metrics again
            self.writer._get_file_writer().add_summary(summary)
        if self.service is not None:
            self.service.log_hyperparams({**flat, "commit": about["commit"]})

    def close(self) -> None:
        self.bar.close()
        if self.service is not None:
            self.service.finalize("failed" if sys.exc_info()[1] else "success")
            getattr(self.service.experiment, "finish", int)()  # wandb has one run per process
        if self.writer is not None and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            # The signal may have interrupted TensorBoard's queue; then close() would never return.
            closing = threading.Thread(target=self.writer.close, daemon=True)
            closing.start()
            closing.join(CLOSE_TIMEOUT)
        elif self.writer is not None:
            self.writer.close()


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
