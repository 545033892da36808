"""Log of a run: TensorBoard events, train.log and a progress bar.

Only rank zero writes; the `Log` of another rank does nothing, so the loop need not ask.
"""

import contextlib
import sys
import threading
import time
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

CLOSE_TIMEOUT = 3  # seconds for TensorBoard to write its queue when a run is interrupted
HPARAMS = ("seed", "row", "preset", "freeze_bn", "loss", "model", "optim", "trainer", "features")


def print_message(text: str) -> None:
    """Print a line to stderr without breaking a progress bar."""
    tqdm.write(text, file=sys.stderr)


class EventFile:
    """File of TensorBoard's writer thread. A full disk stops the curves, not the run."""

    def __init__(self, file: Any):
        self.file = file

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.file.write(data)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.file.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()


class Log:
    """TensorBoard and train.log of one run folder.

    purge_step: drop the events from this step on, as a resumed run writes them again.
    """

    def __init__(self, folder: Path, active: bool, purge_step: int | None = None):
        self.path, self.active = folder / "train.log", active
        self.bar, self.writer = tqdm(disable=True), None
        if active:
            self.writer = SummaryWriter(str(folder), purge_step=purge_step)
            record = self.writer._get_file_writer().event_writer._async_writer._writer
            record._writer = EventFile(record._writer)

    def info(self, message: str) -> None:
        """Print a message and append it to train.log; a full disk does not stop the run."""
        if self.active:
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}"
            print_message(line)
            with contextlib.suppress(OSError), self.path.open("a") as file:
                file.write(f"{line}\n")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        if self.writer is not None:
            for key, value in values.items():
                self.writer.add_scalar(key, value, step)

    def figure(self, key: str, figure: Figure, step: int) -> None:
        if self.writer is not None:
            self.writer.add_figure(key, figure, step)

    def mesh(self, key: str, vertices: Tensor, triangles: Tensor, step: int) -> None:
        """Log (N, V, 3), (N, F, 3) for TensorBoard's mesh plugin."""
        if self.writer is not None:
            self.writer.add_mesh(key, vertices, faces=triangles, global_step=step)

    def hparams(self, cfg: DictConfig, metrics: Mapping[str, float]) -> None:
        """Log the settings and results for TensorBoard's table."""
        if self.writer is None:
            return
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
        flat: dict[str, Any] = {}
        stack = [(name, plain[name]) for name in HPARAMS]
        while stack:
            name, node = stack.pop()
            if isinstance(node, dict):
                stack.extend((f"{name}.{key}", value) for key, value in node.items())
            else:
                flat[name] = node if isinstance(node, bool | int | float) else str(node)
        self.writer.add_hparams(flat, dict(metrics), run_name=".")

    def progress(self, total: int, done: int, show: bool) -> None:
        """Show a bar over all steps, with the time left, if stderr is a terminal."""
        hidden = None if show and self.active else True  # None: tqdm checks for a terminal
        self.bar = tqdm(total=total, initial=done, disable=hidden, unit="step", dynamic_ncols=True)

    def close(self) -> None:
        self.bar.close()
        if self.writer is not None and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            # The signal may have interrupted TensorBoard's queue; then close() would never return.
            closing = threading.Thread(target=self.writer.close, daemon=True)
            closing.start()
            closing.join(CLOSE_TIMEOUT)
        elif self.writer is not None:
            self.writer.close()


def label_figures(loop: Any, test: Mapping[str, NDArray]) -> dict[str, Figure]:
    """Plot the labels next to the predictions and, if the inputs are images, some of them.

    test: pred (N, D), target (N, D) and index (N,) of the test split, or nothing.
    """
    if not test:
        return {}
    some = np.linspace(0, len(test["pred"]) - 1, min(8, len(test["pred"]))).astype(int)
    inputs = [loop.images[int(index)]["input"] for index in test["index"][some]]
    figures = {"labels": marginals(loop.labels, test["pred"])}
    if all(one.ndim == 3 and len(one) == 3 for one in inputs):
        figures["samples"] = samples(inputs, test["pred"][some], test["target"][some])
    return figures


def marginals(labels: NDArray, pred: NDArray, bins: int = 60) -> Figure:
    """Plot the histograms of training labels and predictions, in label dimension 0."""
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
    """Plot images (3, H, W) in a row, each with its predicted (true) label."""
    shown = [image.float().cpu().numpy().transpose(1, 2, 0) for image in images]
    figure = Figure(figsize=(1.5 * len(shown), 2))
    for i, image in enumerate(shown):
        ax = figure.add_subplot(1, len(shown), i + 1)
        span = image.max() - image.min()
        ax.imshow((image - image.min()) / (span if span > 0 else 1))
        ax.set_title(f"{pred[i, 0]:.1f} ({target[i, 0]:.1f})", fontsize=8)
        ax.axis("off")
    return figure
