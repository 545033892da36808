"""Depth from an image: Hu et al. 2019, "Revisiting Single Image Depth Estimation", with the names
of the released checkpoints.

    E    ResNet: four maps, at 1/4, 1/8, 1/16 and 1/32 of the image
    D    1x1 convolution, then four up-projections, each to the size of the next finer map
    MFF  every map of E, up-projected to the output's size with 16 channels each, fused
    R    three 5x5 convolutions on the concatenated maps of D and MFF

228 x 304 in, 114 x 152 out. Upsampling is bilinear, corners not aligned.

N: images; C: channels before the last layer; W: numbers per pixel (the likelihood's width); h, w:
the output's size; F: width of the flattened features.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.regressor import Regressor, Smoothing
from models.resnet import LAYERS, add_layers, read_imagenet

FUSED = 16  # channels of each of MFF's four branches


class DenseRegressor(Regressor):
    """pred = head(features(x)), a map (N, W, h, w); features are one vector (N, F) per image.

    A subclass defines `features`, `decode`: (N, F) -> (N, C, h, w), and `last`: (N, C, h, w) ->
    (N, W, h, w). `width` is C, because feature smoothing acts on pixels, before `last`.
    """

    decode: Callable[[Any], Tensor]
    last: Callable[[Tensor], Tensor]

    def head(
        self, features: Any, target: Tensor | None = None, *, with_features: bool = False
    ) -> Any:
        """Return the map (N, W, h, w), and the maps (N, C, h, w) before the last layer if asked.
        Feature smoothing uses the target (N, 1, h, w), in training only."""
        maps = self.decode(features)
        if self.smoothing is not None and self.training and target is not None:
            n, channels, high, wide = maps.shape
            pixels = maps.permute(0, 2, 3, 1).reshape(-1, channels)
            labels = target[:, 0].reshape(-1, 1)
            known = labels[:, 0] > 0  # zero is a missing measurement
            smooth = self.smoothing(pixels, labels, known).unflatten(0, (n, high, wide))
            maps = torch.empty_like(maps).copy_(smooth.permute(0, 3, 1, 2))
        return (self.last(maps), maps) if with_features else self.last(maps)

    def forward(self, x: Tensor, target: Tensor | None = None, with_features: bool = False) -> Any:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = self.features(x)
        return self.head(features, target, with_features=with_features)


class UpProjection(nn.Module):
    """Bilinear upsampling, then relu(5x5 -> 3x3 + 5x5), batch-norm after every convolution."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, outputs, 5), nn.BatchNorm2d(outputs)
        self.conv1_2, self.bn1_2 = conv(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(inputs, outputs, 5), nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        x = resize(x, size)
        long = self.bn1_2(self.conv1_2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(long + self.bn2(self.conv2(x)))


class Encoder(nn.Module):
    """torchvision's ResNet without pooling and classifier: (N, 3, H, W) -> four maps."""

    def __init__(self, depth: int):
        super().__init__()
        width = add_layers(self, depth)
        self.channels = [width // k for k in (8, 4, 2, 1)]

    def forward(self, x: Tensor) -> list[Tensor]:
        maps = []
        for name in LAYERS:
            x = getattr(self, name)(x)
            if name.startswith("layer"):
                maps.append(x)
        return maps


class Decoder(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv, self.bn = conv(channels, channels // 2, 1), nn.BatchNorm2d(channels // 2)
        halves = (UpProjection(channels // k, channels // (2 * k)) for k in (2, 4, 8, 16))
        self.up1, self.up2, self.up3, self.up4 = halves

    def forward(self, maps: list[Tensor], size: tuple[int, int]) -> Tensor:
        x = functional.relu(self.bn(self.conv(maps[-1])))
        for up, finer in zip((self.up1, self.up2, self.up3), maps[-2::-1], strict=True):
            x = up(x, finer.shape[-2:])
        return self.up4(x, size)


class Fusion(nn.Module):
    def __init__(self, channels: list[int]):
        super().__init__()
        self.up1, self.up2, self.up3, self.up4 = (UpProjection(c, FUSED) for c in channels)
        self.conv, self.bn = conv(4 * FUSED, 4 * FUSED, 5), nn.BatchNorm2d(4 * FUSED)

    def forward(self, maps: list[Tensor], size: tuple[int, int]) -> Tensor:
        ups = (self.up1, self.up2, self.up3, self.up4)
        fused = torch.cat([up(x, size) for up, x in zip(ups, maps, strict=True)], 1)
        return functional.relu(self.bn(self.conv(fused)))


class Refinement(nn.Module):
    """Two convolutions here; the third, `conv2`, is the model's last layer."""

    def __init__(self, channels: int, outputs: int):
        super().__init__()
        self.conv0, self.bn0 = conv(channels, channels, 5), nn.BatchNorm2d(channels)
        self.conv1, self.bn1 = conv(channels, channels, 5), nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, outputs, 5, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn0(self.conv0(x)))
        return functional.relu(self.bn1(self.conv1(x)))


class DepthNet(DenseRegressor):
    """ResNet-18, -34 or -50 encoder, decoder, fusion, refinement: (N, 3, H, W) -> (N, W, H/2, W/2).

    outputs: the likelihood's width. weights: of the encoder, as in ResNet.
    """

    head_names = ("D", "MFF", "R")

    def __init__(
        self,
        depth: int = 50,
        outputs: int = 1,
        weights: str | None = None,
        smoothing: Smoothing | None = None,
    ):
        encoder = Encoder(depth)
        width = encoder.channels[-1] // 32 + 4 * FUSED
        super().__init__(width, smoothing)
        self.E = encoder
        self.D, self.MFF = Decoder(encoder.channels[-1]), Fusion(encoder.channels)
        self.R = Refinement(width, outputs)
        if weights is not None:
            read_imagenet(self.E, depth, weights)

    def features(self, x: Tensor) -> Any:
        """Return the encoder's four maps; unlike a vector, they are never cached."""
        return self.E(x)

    def decode(self, features: list[Tensor]) -> Tensor:
        size = features[0].shape[-2] * 2, features[0].shape[-1] * 2
        return self.R(torch.cat([self.D(features, size), self.MFF(features, size)], 1))

    def last(self, maps: Tensor) -> Tensor:
        return self.R.conv2(maps)


def conv(inputs: int, outputs: int, size: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)


def resize(x: Tensor, size: Sequence[int]) -> Tensor:
    return functional.interpolate(x, tuple(size), mode="bilinear", align_corners=False)
