"""A model and its loss as one module, so that the loss's own parameters (sigma) are moved,
averaged over ranks, optimised and saved like the model's.

A benchmark whose step is more than `loss(model(input), target)` writes another class with the same
six methods: select, forward, predict, terms, constant_keys, end_epoch.

A GPU that is asked for a number waits for Python and Python for it. So `select` finds the rows of a
batch that count while the batch is still on the host, and forward reads nothing back.

N: rows of the batch; D: label dimensions; W: the likelihood's width; in maps of h x w pixels, M:
pixels that count.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional


class Regression(nn.Module):
    """loss(model(input), target), each sample with its weight if there are weights.

    Arguments:
        model: a Regressor.
        loss: a loss that owns a `likelihood`.
        weights: (samples,) one weight for each training sample, or None.
        cached: the inputs are features already, so only the head is run.
    """

    weights: Tensor | None

    def __init__(self, model: Any, loss: Any, weights: Tensor | None = None, cached: bool = False):
        super().__init__()
        self.model, self.loss, self.cached = model, loss, cached
        self.register_buffer("weights", weights, persistent=False)

    def select(self, batch: dict) -> dict:
        """A training batch before it is moved to the device -> with what forward wants to know."""
        return batch

    def forward(self, batch: dict) -> tuple[Tensor, Tensor]:
        """A training batch -> the mean loss of its N rows, and the raw predictions (N, W)."""
        if self.cached:
            pred = self.model.head(batch["input"])
        else:
            pred = self.model(batch["input"], batch["target"])
        return self.loss(pred, batch["target"], weight=self._weight(batch)), pred

    def predict(self, batch: dict) -> Tensor:
        """(N, D) point predictions."""
        pred = self.model.head(batch["input"]) if self.cached else self.model(batch["input"])
        return self.loss.likelihood.decode(pred.float())

    @torch.no_grad()
    def terms(self, batch: dict, pred: Tensor) -> dict[str, float]:
        """What the loss is made of: for the log, and for the error if it is not finite."""
        pred, target = pred.detach().float(), batch["target"]
        terms = {"pred_min": float(pred.min()), "pred_max": float(pred.max())}
        if hasattr(self.loss, "prior"):  # Theorem 1's two terms
            training = self.loss.training
            self.loss.eval()  # looking must not push labels into a queue
            nll = -self.loss.likelihood.log_prob(target, pred)
            balance = self.loss.prior.log_evidence(self.loss.likelihood, pred, target)
            self.loss.train(training)
            terms |= {"nll": float(nll.mean()), "balance": float(balance.mean())}
        return terms | self.scales()

    def scales(self) -> dict[str, float]:
        """sigma (or another loss parameter), its mean where there is one per dimension."""
        likelihood = getattr(self.loss, "likelihood", None)
        symbol = getattr(likelihood, "symbol", None)
        return (
            {} if symbol is None else {symbol: float(getattr(likelihood, symbol).detach().mean())}
        )

    def implausible(self, report: Mapping[str, float], labels: NDArray) -> str | None:
        """Why a report cannot be that of a model that has learnt: it is not even a number, or its
        mean error is more than any guess within the training labels (N, D), or zero, would have."""
        error = report.get("test/mae")
        low, high = float(np.nanmin(labels)), float(np.nanmax(labels))
        if error is None or error <= max(high - low, abs(low), abs(high)):
            return None
        return (
            f"the mean error is {error:.4g}, where the labels lie between {low:.4g} and {high:.4g}"
        )

    def constant_keys(self) -> set[str]:
        """The keys of the state dict that training cannot change."""
        return {f"model.{key}" for key in self.model.constant_keys()}

    def end_epoch(self) -> None:
        """Tell the parts that count epochs (FDS) that one is over."""
        for module in self.modules():
            if module is not self and hasattr(module, "end_epoch"):
                module.end_epoch()  # pyright: ignore[reportCallIssue]

    def _weight(self, batch: dict) -> Tensor | None:
        return None if self.weights is None else self.weights[batch["meta"]["index"]]


class Dense(Regression):
    """The same with a map (1, h, w) of labels for each input: every pixel that counts is a row.

    Arguments:
        nearest: labels below it are missing or do not count.
        weights: (bins,) one weight for each label bin, looked up pixel by pixel.
        bins_per_unit: bins of that table in a unit of the label.
    """

    def __init__(
        self,
        model: Any,
        loss: Any,
        nearest: float,
        bins_per_unit: float,
        weights: Tensor | None = None,
        cached: bool = False,
    ):
        known = None if weights is None else weights.nan_to_num(nan=1.0)  # of bins without labels
        super().__init__(model, loss, known, cached)
        self.nearest, self.bins_per_unit = nearest, bins_per_unit

    def select(self, batch: dict) -> dict:
        """With `rows` (M,), the indices of the pixels that count."""
        return batch | {"rows": indices_where(batch["target"] >= self.nearest)}

    def forward(self, batch: dict) -> tuple[Tensor, Tensor]:
        """A training batch -> the mean loss of its M pixels, and the raw predictions (M, W)."""
        run = self.model.head if self.cached else self.model
        batch = batch if "rows" in batch else self.select(batch)
        pred = self._rows(run(batch["input"], batch["target"]), batch)
        target = self._rows(batch["target"], batch)
        return self.loss(pred, target, weight=self._pixel_weight(target)), pred

    def predict(self, batch: dict) -> Tensor:
        """(N, 1, H, W) point predictions, bilinear at the target's size, corners aligned."""
        pred = self.model.head(batch["input"]) if self.cached else self.model(batch["input"])
        n, width, *size = pred.shape
        rows = pred.float().permute(0, 2, 3, 1).reshape(-1, width)
        maps = self.loss.likelihood.decode(rows).reshape(n, 1, *size)
        size = batch["target"].shape[-2:]
        return functional.interpolate(maps, size, mode="bilinear", align_corners=True)

    def terms(self, batch: dict, pred: Tensor) -> dict[str, float]:
        batch = batch if "rows" in batch else self.select(batch)
        return super().terms({"target": self._rows(batch["target"], batch)}, pred)

    def _rows(self, maps: Tensor, batch: dict) -> Tensor:
        """(N, W, h, w) -> (M, W)."""
        return maps.permute(0, 2, 3, 1).flatten(0, 2)[batch["rows"]]

    def _pixel_weight(self, target: Tensor) -> Tensor | None:
        if self.weights is None:
            return None
        bins = (target[:, 0].float() * self.bins_per_unit).long()
        return self.weights[bins.clamp(max=len(self.weights) - 1)]


def indices_where(mask: Tensor) -> Tensor:
    """Where a mask is true, in its flattened form; ready to be moved to a GPU without a wait."""
    found = mask.flatten().nonzero()[:, 0]
    host = found.device.type == "cpu" and torch.cuda.is_available()
    return found.pin_memory() if host else found
