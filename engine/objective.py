"""A model and its loss as one module, so that the loss's own parameters (sigma) are moved,
averaged over ranks, optimised and saved like the model's.

A benchmark whose step is more than `loss(model(input), target)` writes another class with the same
five methods: forward, predict, terms, constant_keys, end_epoch.

N: rows of the batch; D: label dimensions; W: the likelihood's width.
"""

from typing import Any

import torch
from torch import Tensor, nn


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
