"""Task: a model, its loss and its regularisers as one module.

So the parameters of the loss (sigma) are moved, averaged over ranks, optimised and saved like those
of the model. A benchmark whose step is more than `loss(model(input), target)` defines another class
with the same methods: select, forward, predict, terms, scales, implausible, constant_keys,
end_epoch.

Reading a scalar back synchronises the GPU. So `select` finds the samples of a batch that count
while the batch is on the host, and forward reads nothing back.

N: samples of the batch; D: label dimensions; W: the likelihood's width; F: feature width; M: pixels
that count, in maps of h x w pixels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional


class Regression(nn.Module):
    """loss(model(input), target) plus the regularisers.

    Arguments:
        model: a Regressor.
        loss: loss(pred, target, weight) -> scalar. Its `likelihood`, if it has one, decodes the
            predictions.
        weights: (samples,) one weight for each training sample, or None.
        cached: the inputs are features, so only the head is run.
        regularizers: modules r(features (N, F), pred (N, D), target (N, D)) -> scalar, added to
            the loss: {name: module}, or a list, named by class. Features are the input of the
            head's last layer, `pred` is the decoded point prediction.
    """

    weights: Tensor | None
    smooths_in_head = False  # whether the model's head takes the target, for feature smoothing

    def __init__(
        self,
        model: Any,
        loss: Any,
        weights: Tensor | None = None,
        cached: bool = False,
        regularizers: Mapping[str, nn.Module] | Sequence[nn.Module] = (),
    ):
        super().__init__()
        self.model, self.loss, self.cached = model, loss, cached
        self.register_buffer("weights", weights, persistent=False)
        if not isinstance(regularizers, Mapping):
            named = {type(r).__name__.lower(): r for r in regularizers}
            if len(named) < len(regularizers):
                raise ValueError("two regularizers of one class; give a dict {name: regularizer}")
            regularizers = named
        self.regularizers = nn.ModuleDict(regularizers)
        self.regularizer_terms: dict[str, Tensor] = {}  # of the last batch

    def select(self, batch: dict) -> dict:
        """Return a training batch, still on the host, with what `forward` needs."""
        return batch

    def forward(self, batch: dict) -> tuple[Tensor, Tensor]:
        """Return the mean loss of a training batch and the raw predictions (N, W)."""
        run = self.model.head if self.cached else self.model
        with_target = self.smooths_in_head or not self.cached
        given = (batch["input"], batch["target"]) if with_target else (batch["input"],)
        features, target = None, self.samples(batch["target"], batch)
        if self.regularizers:
            pred, features = run(*given, with_features=True)
        else:
            pred = run(*given)
        pred = self.samples(pred, batch)
        weight = None if self.weights is None else self.weights[self.weight_of(batch, target)]
        loss = self.loss(pred, target, weight=weight)
        if features is not None:
            features, point = self.samples(features, batch).float(), self.decode(pred)
            with torch.autocast(pred.device.type, enabled=False):  # regularisers need float32
                for name, regularizer in self.regularizers.items():
                    term = regularizer(features, point, target)
                    self.regularizer_terms[name] = term.detach()
                    loss = loss + term
        return loss, pred

    def samples(self, x: Tensor, batch: dict) -> Tensor:
        """Return the samples of x that count, (N, ...)."""
        return x

    def weight_of(self, batch: dict, target: Tensor) -> Tensor:
        """Return which of the weights each sample has, (N,)."""
        return batch["meta"]["index"]

    def decode(self, pred: Tensor) -> Tensor:
        """(N, W) -> (N, D) point predictions; without a likelihood, the predictions themselves."""
        likelihood = getattr(self.loss, "likelihood", None)
        return pred.float() if likelihood is None else likelihood.decode(pred.float())

    def predict(self, batch: dict) -> Tensor:
        """Return (N, D) point predictions."""
        return self.decode((self.model.head if self.cached else self.model)(batch["input"]))

    @torch.no_grad()
    def terms(self, batch: dict, pred: Tensor) -> dict[str, float]:
        """Return the terms of the loss, for the log and for the error if it is not finite."""
        pred, target = pred.detach().float(), self.samples(batch["target"], batch)
        terms = {"pred_min": pred.min(), "pred_max": pred.max()}
        if hasattr(self.loss, "prior"):  # Theorem 1's two terms
            training = self.loss.training
            self.loss.eval()  # must not push labels into a queue
            nll = -self.loss.likelihood.log_prob(target, pred)
            balance = self.loss.prior.log_evidence(self.loss.likelihood, pred, target)
            self.loss.train(training)
            total = nll + self.loss.strength * balance  # the loss rises with its unit, sigma^2
            terms |= {"nll": nll, "balance": balance, "unscaled_loss": total}
        terms |= {f"regularizer/{k}": term for k, term in self.regularizer_terms.items()}
        return {name: float(term.mean()) for name, term in terms.items()} | self.scales()

    def scales(self) -> dict[str, float]:
        """Return sigma, or the likelihood's other scale; the mean if there is one per dimension."""
        likelihood = getattr(self.loss, "likelihood", None)
        symbol = getattr(likelihood, "symbol", None)
        if symbol is None:
            return {}
        return {symbol: float(getattr(likelihood, symbol).detach().mean())}

    def implausible(self, report: Mapping[str, float], labels: NDArray) -> str | None:
        """Return why a model with this report has not learnt, or None: its mean error is NaN, or
        more than any guess within the training labels (N, D), or zero, would have."""
        error = report.get("test/mae")
        low, high = float(np.nanmin(labels)), float(np.nanmax(labels))
        if error is None or error <= max(high - low, abs(low), abs(high)):
            return None
        return (
            f"the mean error is {error:.4g}, where the labels lie between {low:.4g} and {high:.4g}"
        )

    def constant_keys(self) -> set[str]:
        """Return the keys of the state dict that training cannot change."""
        return {f"model.{key}" for key in self.model.constant_keys()}

    def end_epoch(self) -> None:
        """Call `end_epoch` of the modules that count epochs (FDS)."""
        for module in self.modules():
            if module is not self and hasattr(module, "end_epoch"):
                module.end_epoch()  # pyright: ignore[reportCallIssue]


class Dense(Regression):
    """Regression of maps (1, h, w): every pixel that counts is a sample.

    Arguments:
        nearest: labels below it are missing or do not count.
        weights: (bins,) one weight for each label bin, looked up pixel by pixel.
        bins_per_unit: bins of `weights` per unit of the label.
    """

    smooths_in_head = True

    def __init__(
        self,
        model: Any,
        loss: Any,
        nearest: float,
        bins_per_unit: float,
        weights: Tensor | None = None,
        cached: bool = False,
        regularizers: Mapping[str, nn.Module] | Sequence[nn.Module] = (),
    ):
        if weights is not None:
            weights = weights.nan_to_num(nan=1.0)  # bins without labels
        super().__init__(model, loss, weights, cached, regularizers)
        self.nearest, self.bins_per_unit = nearest, bins_per_unit

    def select(self, batch: dict) -> dict:
        """Add `pixels` (M,), the indices of the pixels that count."""
        return batch | {"pixels": indices_where(batch["target"] >= self.nearest)}

    def samples(self, x: Tensor, batch: dict) -> Tensor:
        """(N, W, h, w) -> (M, W)."""
        pixels = batch["pixels"] if "pixels" in batch else self.select(batch)["pixels"]
        return x.permute(0, 2, 3, 1).flatten(0, 2)[pixels]

    def weight_of(self, batch: dict, target: Tensor) -> Tensor:
        bins = (target[:, 0].float() * self.bins_per_unit).long()
        return bins.clamp(max=len(self.weights) - 1)  # pyright: ignore[reportArgumentType]

    def predict(self, batch: dict) -> Tensor:
        """Return (N, 1, H, W) point predictions, resized bilinearly to the target's size."""
        pred = (self.model.head if self.cached else self.model)(batch["input"])
        n, width, *size = pred.shape
        pixels = pred.float().permute(0, 2, 3, 1).reshape(-1, width)
        maps = self.decode(pixels).reshape(n, 1, *size)
        size = batch["target"].shape[-2:]
        return functional.interpolate(maps, size, mode="bilinear", align_corners=True)


def indices_where(mask: Tensor) -> Tensor:
    """Return where a flattened mask is true, in pinned memory if there is a GPU."""
    found = mask.flatten().nonzero()[:, 0]
    host = found.device.type == "cpu" and torch.cuda.is_available()
    return found.pin_memory() if host else found
