"""ResNet with a regression head: torchvision's layers under the names of the released checkpoints.

    image (N, 3, H, W) -> conv1 bn1 relu maxpool layer1..4 -> global mean (N, F) -> linear (N, W)

F is 512 for ResNet-18 and -34, 2048 for ResNet-50. The label is raw (years), nothing is rescaled.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from models.regressor import Head, Regressor, Smoothing

LAYERS = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")


def add_layers(module: nn.Module, depth: int) -> int:
    """Add the layers of a ResNet with random weights to a module, and return F."""
    net: Any = torchvision.models.get_model(f"resnet{depth}", weights=None)
    for name in LAYERS:
        module.add_module(name, getattr(net, name))
    return net.fc.in_features


def read_imagenet(model: nn.Module, depth: int, weights: str) -> None:
    """Load torchvision's ImageNet weights, without the classifier, from the network or a file.

    weights: "imagenet" (downloaded; if that fails, a warning and random weights), or a path.
    """
    if weights == "imagenet":
        kind = torchvision.models.get_model_weights(f"resnet{depth}")
        try:
            state = kind["IMAGENET1K_V1"].get_state_dict(progress=False, check_hash=True)
        except OSError as error:
            warnings.warn(
                f"ImageNet weights of ResNet-{depth} cannot be fetched ({error}); the encoder "
                "starts at random, which costs accuracy. Set model.weights=<file>, or "
                "model.weights=null to silence this warning.",
                stacklevel=3,
            )
            return
    elif Path(weights).is_file():
        state = torch.load(weights, map_location="cpu", weights_only=True)
    else:
        raise FileNotFoundError(
            f"{weights}: no such ImageNet weights; download torchvision's resnet{depth} file, or "
            "set model.weights=null to start from random weights."
        )
    state = {key: value for key, value in state.items() if not key.startswith("fc.")}
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [key for key in missing if key.startswith(LAYERS)]
    if missing or unexpected:
        raise ValueError(
            f"{weights}: expected torchvision's ResNet weights of the same depth; missing "
            f"{missing[:3]}, unexpected {unexpected[:3]}."
        )


class ResNet(Regressor):
    """ResNet-18, -34 or -50 with `outputs` numbers per image.

    Arguments:
        weights: a file of torchvision's ImageNet weights, "imagenet" to download them, or None for
            random weights, as in DIR.
        head: creates the head's layers; one linear layer by default.
    """

    def __init__(
        self,
        depth: int = 50,
        outputs: int = 1,
        weights: str | None = None,
        head: Head | None = None,
        smoothing: Smoothing | None = None,
    ):
        super().__init__(512 if depth < 50 else 2048, smoothing)
        add_layers(self, depth)
        self.add_head(outputs, head)
        if weights is not None:
            read_imagenet(self, depth, weights)

    def features(self, x: Tensor) -> Tensor:
        for name in LAYERS:
            x = getattr(self, name)(x)
        return x.mean((-2, -1))
