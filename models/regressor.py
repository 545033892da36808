"""Regressor: two maps with a public seam between them.

    pred = head(features(x))

Two-stage training (RRT) freezes the features and trains a new head, cached features replace the
first map by a table, FDS smooths the features, and regularisers act on them.

N: images; F: feature width; W: numbers per image that the head outputs.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

Head = Callable[[int, int], dict[str, nn.Module]]  # (F, W) -> named layers, applied in order
Smoothing = Callable[[int], nn.Module]  # F -> an FDS module


class Regressor(nn.Module):
    """Base of every model. A subclass defines `features` and calls `add_head`.

    Arguments:
        width: F.
        smoothing: creates the FDS module that adjusts features in training; or None.
    """

    head_names: tuple[str, ...] = ("linear",)  # the children that `head` uses
    always_frozen = False  # whether everything but the head is frozen from the start

    def __init__(self, width: int, smoothing: Smoothing | None = None):
        super().__init__()
        self.width = width
        self.smoothing = None if smoothing is None else smoothing(width)
        self.frozen = False
        self.freeze_bn = False

    def add_head(self, outputs: int, head: Head | None = None) -> None:
        """Add one linear layer, or the layers of `head`. The linear layer is created in any case,
        which keeps the random initialisation of published runs."""
        self.linear: nn.Module = nn.Linear(self.width, outputs)
        if head is not None:
            layers = head(self.width, outputs)
            self.head_names = tuple(layers)
            for name, layer in layers.items():
                setattr(self, name, layer)

    def features(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, F)."""
        raise TypeError(f"{type(self).__name__} defines no features")

    def head(self, features: Tensor, *, with_features: bool = False) -> Any:
        """(N, F) -> (N, W), and the input of the last layer if asked."""
        *hidden, last = (getattr(self, name) for name in self.head_names)
        for layer in hidden:
            features = layer(features)
        pred = last(features)
        return (pred, features) if with_features else pred

    def forward(self, x: Tensor, target: Tensor | None = None, with_features: bool = False) -> Any:
        """(N, 3, H, W) -> (N, W), and the input of the head's last layer if asked, which is (N, F)
        for a linear head. Feature smoothing uses the target, in training only."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = self.features(x)
        if self.smoothing is not None and self.training and target is not None:
            features = self.smoothing(features, target)
        return self.head(features, with_features=True) if with_features else self.head(features)

    def in_head(self, key: str) -> bool:
        """Return whether a parameter or buffer of this name belongs to the head."""
        return key.split(".")[0] in self.head_names

    def freeze(self, freeze_bn: bool) -> Self:
        """Train only the head from here on.

        With freeze_bn the backbone stays in eval mode, so it is a fixed function of the image.
        Without it, batch-norm keeps using batch statistics and updating the running ones, as the
        released code does in its second stage.
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
        """Return the keys of the state dict that training cannot change."""
        if not self.frozen:
            return set()
        fixed = {key for key, parameter in self.named_parameters() if not parameter.requires_grad}
        if self.freeze_bn:
            fixed |= {key for key in dict(self.named_buffers()) if not self.in_head(key)}
        return fixed & self.state_dict().keys()


def mlp_head(width: int, outputs: int, hidden: int) -> dict[str, nn.Module]:
    """Return a head with one hidden layer: relu (N, hidden) -> linear (N, W)."""
    layer = nn.Sequential(nn.Linear(width, hidden), nn.ReLU())
    return {"hidden": layer, "linear": nn.Linear(hidden, outputs)}


class MLP(Regressor):
    """(N, inputs) -> (N, outputs), one hidden layer. The inputs are features already, such as
    frozen sentence embeddings: the whole network is the head.
    """

    head_names = ("hidden", "linear")
    always_frozen = True

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__(inputs)
        self.hidden, self.linear = mlp_head(inputs, outputs, hidden).values()

    def features(self, x: Tensor) -> Tensor:
        return x

    def head(self, features: Tensor, *, with_features: bool = False) -> Any:
        if (width := features.shape[-1]) != self.width:
            raise ValueError(
                f"the network expects inputs of width {self.width}, got {width}; set "
                f"model.inputs={width}."
            )
        return super().head(features, with_features=with_features)
