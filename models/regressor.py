"""A regressor is two maps, and the seam between them is public:

    pred = head(features(x))

Two-stage training (RRT) freezes the first and learns the second anew, cached features replace the
first by a table, and FDS smooths what passes between them. Each needs the seam, nothing more.

N: images; F: feature width; W: numbers per image that the head outputs.
"""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

Smoothing = Callable[[int], nn.Module]


class Regressor(nn.Module):
    """The base of every model; a subclass defines `features`, `head` and the head's children.

    Arguments:
        width: F.
        smoothing: makes an FDS module, which adjusts features in training, from F; or None.
    """

    head_names: tuple[str, ...] = ("linear",)  # the children that `head` uses
    always_frozen = False  # whether everything but the head is frozen from the start

    def __init__(self, width: int, smoothing: Smoothing | None = None):
        super().__init__()
        self.width = width
        self.smoothing = None if smoothing is None else smoothing(width)
        self.frozen = False
        self.freeze_bn = False

    def features(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, F)."""
        raise TypeError(f"{type(self).__name__} defines no features")

    def head(self, features: Tensor) -> Tensor:
        """(N, F) -> (N, W)."""
        raise TypeError(f"{type(self).__name__} defines no head")

    def forward(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        """(N, 3, H, W) -> (N, W). The target is only for feature smoothing, only in training."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = self.features(x)
        if self.smoothing is not None and self.training and target is not None:
            features = self.smoothing(features, target)
        return self.head(features)

    def in_head(self, key: str) -> bool:
        """Whether a parameter or buffer of this name belongs to the head."""
        return key.split(".")[0] in self.head_names

    def freeze(self, freeze_bn: bool) -> Self:
        """Stop learning everything but the head.

        With freeze_bn the backbone is in eval mode for good, so it is always the same function of
        the image. Without it, batch-norm goes on using batch statistics and updating the running
        ones, as the released code does in its second stage.
        """
        self.frozen, self.freeze_bn = True, freeze_bn
        for key, parameter in self.named_parameters():
            parameter.requires_grad_(self.in_head(key))
        return self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.frozen and self.freeze_bn:
            for name, child in self.named_children():
                child.train(mode and name in self.head_names)
        return self

    def constant_keys(self) -> set[str]:
        """The keys of the state dict that training cannot change: a checkpoint may omit them."""
        if not self.frozen:
            return set()
        learned = {key for key, parameter in self.named_parameters() if parameter.requires_grad}
        if self.freeze_bn:
            return {
                key for key in self.state_dict() if key not in learned and not self.in_head(key)
            }
        return {key for key, p in self.named_parameters() if not p.requires_grad}


class MLP(Regressor):
    """(N, inputs) -> (N, outputs), one hidden layer. The inputs are features already, such as
    frozen vectors of sentences: the whole network is the head.
    """

    head_names = ("hidden", "linear")
    always_frozen = True

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__(inputs)
        self.hidden = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU())
        self.linear = nn.Linear(hidden, outputs)

    def features(self, x: Tensor) -> Tensor:
        return x

    def head(self, features: Tensor) -> Tensor:
        if (width := features.shape[-1]) != self.width:
            raise ValueError(
                f"the network expects inputs of width {self.width}, got {width}; set "
                f"model.inputs={width}."
            )
        return self.linear(self.hidden(features))
