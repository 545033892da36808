"""Depth from an image: Hu et al. 2019, "Revisiting Single Image Depth Estimation", under the names
of the released checkpoints.

    E    ResNet: four maps, at 1/4, 1/8, 1/16 and 1/32 of the image
    D    1x1 convolution, then four up-projections, each to the size of the next finer map
    MFF  every map of E, up-projected to the output's size with 16 channels each, fused
    R    three 5x5 convolutions on D's and MFF's maps side by side

228 x 304 in, 114 x 152 out. Upsampling is bilinear, corners not aligned.

N: images; C: channels before the last layer; W: numbers per pixel that the likelihood asks for;
h, w: the output's size; F: numbers in a row of features.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional

from models.regressor import Regressor, Smoothing
from models.resnet import DEPTHS

IMAGENET = {
    18: torchvision.models.ResNet18_Weights.IMAGENET1K_V1,
    34: torchvision.models.ResNet34_Weights.IMAGENET1K_V1,
    50: torchvision.models.ResNet50_Weights.IMAGENET1K_V1,
}
FUSED = 16  # channels of each of MFF's four branches


class DenseRegressor(Regressor):
    """pred = head(features(x)), a map (N, W, h, w); features are one row (N, F) per image.

    A subclass defines `features`, `decode`: (N, F) -> (N, C, h, w), and `last`: (N, C, h, w) ->
    (N, W, h, w). `width` is C here, because feature smoothing acts on pixels, before `last`.
    """

    def decode(self, features: Any) -> Tensor:
        raise TypeError(f"{type(self).__name__} defines no decode")

    def last(self, maps: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} defines no last")

    def head(self, features: Any, target: Tensor | None = None) -> Tensor:
        """The target (N, 1, h, w) is only for feature smoothing, only in training."""
        maps = self.decode(features)
        if self.smoothing is not None and self.training and target is not None:
            n, channels, high, wide = maps.shape
            rows = maps.permute(0, 2, 3, 1).reshape(-1, channels)
            labels = target[:, 0].reshape(-1, 1)
            known = labels[:, 0] > 0  # zero is a missing measurement
            smooth = self.smoothing(rows, labels, known).unflatten(0, (n, high, wide))
            maps = torch.empty_like(maps).copy_(smooth.permute(0, 3, 1, 2))
        return self.last(maps)

    def forward(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = self.features(x)
        return self.head(features, target)


class UpProjection(nn.Module):
    """Bilinear upsampling, then relu(5x5 -> 3x3 + 5x5), batch-norm after every convolution."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.conv1, self.bn1 = _conv(inputs, outputs, 5), nn.BatchNorm2d(outputs)
        self.conv1_2, self.bn1_2 = _conv(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = _conv(inputs, outputs, 5), nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        x = functional.interpolate(x, size, mode="bilinear", align_corners=False)
        long = self.bn1_2(self.conv1_2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(long + self.bn2(self.conv2(x)))


class Encoder(nn.Module):
    """A torchvision ResNet without its pooling and classifier."""

    def __init__(self, depth: int):
        super().__init__()
        trunk = DEPTHS[depth](weights=None)
        self.channels = [trunk.fc.in_features // k for k in (8, 4, 2, 1)]
        self.conv1, self.bn1 = trunk.conv1, trunk.bn1
        self.relu, self.maxpool = trunk.relu, trunk.maxpool
        self.layer1, self.layer2 = trunk.layer1, trunk.layer2
        self.layer3, self.layer4 = trunk.layer3, trunk.layer4

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        maps = []
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
            maps.append(x)
        return maps


class Decoder(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv, self.bn = _conv(channels, channels // 2, 1), nn.BatchNorm2d(channels // 2)
        self.up1 = UpProjection(channels // 2, channels // 4)
        self.up2 = UpProjection(channels // 4, channels // 8)
        self.up3 = UpProjection(channels // 8, channels // 16)
        self.up4 = UpProjection(channels // 16, channels // 32)

    def forward(self, maps: list[Tensor], size: tuple[int, int]) -> Tensor:
        x = functional.relu(self.bn(self.conv(maps[-1])))
        for up, finer in zip((self.up1, self.up2, self.up3), maps[-2::-1], strict=True):
            x = up(x, finer.shape[-2:])
        return self.up4(x, size)


class Fusion(nn.Module):
    def __init__(self, channels: list[int]):
        super().__init__()
        self.up1, self.up2, self.up3, self.up4 = (UpProjection(c, FUSED) for c in channels)
        self.conv, self.bn = _conv(4 * FUSED, 4 * FUSED, 5), nn.BatchNorm2d(4 * FUSED)

    def forward(self, maps: list[Tensor], size: tuple[int, int]) -> Tensor:
        ups = (self.up1, self.up2, self.up3, self.up4)
        fused = torch.cat([up(x, size) for up, x in zip(ups, maps, strict=True)], 1)
        return functional.relu(self.bn(self.conv(fused)))


class Refinement(nn.Module):
    """Two convolutions here; the third, `conv2`, is the model's last layer."""

    def __init__(self, channels: int, outputs: int):
        super().__init__()
        self.conv0, self.bn0 = _conv(channels, channels, 5), nn.BatchNorm2d(channels)
        self.conv1, self.bn1 = _conv(channels, channels, 5), nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, outputs, 5, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn0(self.conv0(x)))
        return functional.relu(self.bn1(self.conv1(x)))


class DepthNet(DenseRegressor):
    """ResNet-18, -34 or -50 encoder, decoder, fusion, refinement: (N, 3, H, W) -> (N, W, H/2, W/2).

    Arguments:
        depth: 18, 34 or 50.
        outputs: the width that the likelihood asks for.
        weights: "imagenet" (torchvision's, fetched if it can be; without them a warning says so
            and the encoder starts at random), a torchvision state dict on disk, or None.
    """

    head_names = ("D", "MFF", "R")

    def __init__(
        self,
        depth: int = 50,
        outputs: int = 1,
        weights: str | None = None,
        smoothing: Smoothing | None = None,
    ):
        if depth not in DEPTHS:
            raise ValueError(f"DepthNet has depths {sorted(DEPTHS)}, got {depth}")
        encoder = Encoder(depth)
        width = encoder.channels[-1] // 32 + 4 * FUSED
        super().__init__(width, smoothing)
        self.E = encoder
        self.D, self.MFF = Decoder(encoder.channels[-1]), Fusion(encoder.channels)
        self.R = Refinement(width, outputs)
        state = None if weights is None else _imagenet(weights, depth)
        if state is not None:
            self.E.load_state_dict({k: v for k, v in state.items() if not k.startswith("fc.")})

    def features(self, x: Tensor) -> Any:
        """The encoder's four maps, not a row: they are never cached."""
        return self.E(x)

    def decode(self, features: list[Tensor]) -> Tensor:
        size = features[0].shape[-2] * 2, features[0].shape[-1] * 2
        joined = torch.cat([self.D(features, size), self.MFF(features, size)], 1)
        return self.R(joined)

    def last(self, maps: Tensor) -> Tensor:
        return self.R.conv2(maps)


def _conv(inputs: int, outputs: int, size: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)


def _imagenet(weights: str, depth: int) -> dict[str, Tensor] | None:
    if weights == "imagenet":
        try:
            return dict(IMAGENET[depth].get_state_dict(progress=False, check_hash=True))
        except OSError as error:
            warnings.warn(
                f"ImageNet weights of ResNet-{depth} cannot be fetched ({error}); the encoder "
                "starts at random, which costs accuracy. Give model.weights=<file>, or "
                "model.weights=null to leave this out.",
                stacklevel=3,
            )
            return None
    if not Path(weights).is_file():
        raise FileNotFoundError(
            f"{weights}: no such ImageNet weights; download torchvision's resnet{depth} file, or "
            "set model.weights=null to start from random weights."
        )
    return torch.load(weights, map_location="cpu", weights_only=True)
