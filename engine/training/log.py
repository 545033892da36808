"""What a run tells while it goes on: TensorBoard events, a log file, a progress bar.

Only rank zero writes; the others hold a `Log` that keeps silent, so the loop need not ask.
"""

import contextlib
import functools
import logging
import math
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

PATIENCE = 3  # seconds for TensorBoard to write what it holds when a run is stopped


def say(text: str) -> None:
    """A line on stderr that does not break a progress bar."""
    tqdm.write(text, file=sys.stderr)


def brief(metrics: Mapping[str, float | None], names: Iterable[str]) -> list[tuple[str, str]]:
    """(test/name, value) of these metrics; a group without samples has none."""
    values = [(f"test/{name}", metrics.get(f"test/{name}")) for name in names]
    return [(k, "-" if v is None or not math.isfinite(v) else f"{v:.3f}") for k, v in values]


class Console(logging.Handler):
    """Lines on stderr that do not break a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


class Lines(logging.FileHandler):
    """`train.log`; a full disk ends it without ending the run, whose results matter more."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


class Events:
    """The file behind TensorBoard's thread; a full disk ends the curves, not the run."""

    def __init__(self, file: Any):
        self.file, self.full = file, False

    def __getattr__(self, name: str) -> Any:
        own = getattr(self.file, name)
        return own if name not in ("write", "flush", "close") else functools.partial(self._try, own)

    def _try(self, act: Any, *arguments: Any) -> None:
        if not self.full:
            try:
                act(*arguments)
            except OSError:
                self.full = True


def event_writer(folder: Path, purge_step: int | None) -> SummaryWriter:
    """TensorBoard's writer, whose thread prints no traceback where there is no space."""
    writer = SummaryWriter(str(folder), purge_step=purge_step)
    record = writer._get_file_writer().event_writer._async_writer._writer
    record._writer = Events(record._writer)
    return writer


class Log:
    """TensorBoard and `train.log` of one run folder.

    purge_step: events from this step on are dropped, as a resumed run writes them again.
    """

    def __init__(self, folder: Path, active: bool, purge_step: int | None = None):
        self.active = active
        self.logger = logging.getLogger(f"run.{folder}")
        self.logger.propagate = False
        self.logger.setLevel(logging.INFO if active else logging.CRITICAL)
        self.writer = event_writer(folder, purge_step) if active else None
        self.bar: tqdm | None = None
        if active:
            form = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S")
            handlers = Lines(folder / "train.log"), Console()
            for handler in handlers:
                handler.setFormatter(form)
                self.logger.addHandler(handler)

    def info(self, message: str) -> None:
        self.logger.info(message)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        if self.writer is not None:
            for key, value in values.items():
                self.writer.add_scalar(key, value, step)

    def figure(self, key: str, figure: Figure, step: int) -> None:
        if self.writer is not None:
            self.writer.add_figure(key, figure, step)

    def mesh(self, key: str, vertices: Tensor, triangles: Tensor, step: int) -> None:
        """(N, V, 3), (N, F, 3) for TensorBoard's mesh plugin."""
        if self.writer is not None:
            self.writer.add_mesh(key, vertices, faces=triangles, global_step=step)

    def hparams(self, cfg: DictConfig, metrics: Mapping[str, float]) -> None:
        """TensorBoard's table of settings and results."""
        if self.writer is not None:
            settings = leaves(cfg)
            plain = {
                k: v if isinstance(v, bool | int | float) else str(v) for k, v in settings.items()
            }
            self.writer.add_hparams(plain, dict(metrics), run_name=".")

    def progress(self, total: int, done: int, show: bool) -> None:
        """A bar over all steps, with the time left; silent where stderr is no terminal."""
        hidden = True if not (show and self.active) else None  # None: tqdm looks for a terminal
        self.bar = tqdm(total=total, initial=done, disable=hidden, unit="step", dynamic_ncols=True)

    def advance(self, note: str = "") -> None:
        if self.bar is not None:
            self.bar.update()
            if note:
                self.bar.set_postfix_str(note, refresh=False)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        if self.writer is not None and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            # The signal may have caught TensorBoard's queue half-way; then its end never comes.
            closing = threading.Thread(target=self.writer.close, daemon=True)
            closing.start()
            closing.join(PATIENCE)
        elif self.writer is not None:
            self.writer.close()
        for handler in list(self.logger.handlers):
            self.logger.removeHandler(handler)
            handler.close()


def leaves(cfg: DictConfig) -> dict[str, Any]:
    """The settings of a config under dotted names, without those that say where and how it runs."""
    plain: Any = OmegaConf.to_container(cfg, resolve=True)
    names = ("seed", "row", "preset", "freeze_bn", "loss", "model", "optim", "trainer", "features")
    flat: dict[str, Any] = {}
    stack: list[tuple[str, Any]] = [(name, plain[name]) for name in names]
    while stack:
        name, node = stack.pop()
        if isinstance(node, dict):
            stack.extend((f"{name}.{key}", value) for key, value in node.items())
        else:
            flat[name] = node
    return flat


def label_figures(loop: Any, test: Mapping[str, NDArray]) -> dict[str, Figure]:
    """Of a run at its end: the label histogram beside the predicted marginal, and some images with
    predictions; `test` holds the predictions on the test split, if they are there."""
    if not test:
        return {}
    some = np.linspace(0, len(test["pred"]) - 1, min(8, len(test["pred"]))).astype(int)
    inputs = [loop.images[int(index)]["input"] for index in test["index"][some]]
    figures = {"labels": marginals(loop.labels, test["pred"])}
    if all(one.ndim == 3 and len(one) == 3 for one in inputs):  # else they are no images
        figures["samples"] = samples(inputs, test["pred"][some], test["target"][some])
    return figures


def marginals(labels: NDArray, pred: NDArray, bins: int = 60) -> Figure:
    """The training labels' histogram beside that of the predictions, in label dimension 0."""
    low = float(min(labels[:, 0].min(), pred[:, 0].min()))
    high = float(max(labels[:, 0].max(), pred[:, 0].max()))
    edges = np.linspace(low, high if high > low else low + 1, bins + 1).tolist()
    figure = Figure(figsize=(6, 4))
    ax = figure.add_subplot()
    ax.hist(labels[:, 0], edges, density=True, color="0.75", label="training labels")
    ax.hist(pred[:, 0], edges, density=True, histtype="step", color="#0072B2", label="predictions")
    ax.set(xlabel="label", ylabel="density")
    ax.legend()
    return figure


def samples(images: Iterable[Tensor], pred: NDArray, target: NDArray) -> Figure:
    """A row of images (3, H, W) with predicted and true labels above each."""
    shown = [image.float().cpu().numpy().transpose(1, 2, 0) for image in images]
    figure = Figure(figsize=(1.5 * len(shown), 2))
    for i, image in enumerate(shown):
        ax = figure.add_subplot(1, len(shown), i + 1)
        span = image.max() - image.min()
        ax.imshow((image - image.min()) / (span if span > 0 else 1))
        ax.set_title(f"{pred[i, 0]:.1f} ({target[i, 0]:.1f})", fontsize=8)
        ax.axis("off")
    return figure
