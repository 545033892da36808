"""EfficientNet-Lite0 with a hidden layer in its head:

    maps (N, 1280, H/32, W/32) -> global mean (N, 1280) -> relu (N, 256) -> linear (N, W)

On frozen features a loss of one output has a single direction to move in, while a histogram has one
for each bin: heads alike tell what a likelihood is worth.
"""

from torch import Tensor, nn

from models.efficientnet import EfficientNetLite0
from models.regressor import Smoothing


class EfficientNetLite0MLP(EfficientNetLite0):
    """EfficientNetLite0 whose head is `hidden` wide; its features may be another one's stage 1."""

    head_names = ("hidden", "linear")

    def __init__(
        self,
        outputs: int = 1,
        hidden: int = 256,
        pretrained: bool = True,
        drop_connect: float = 0.0,
        smoothing: Smoothing | None = None,
    ):
        super().__init__(outputs, pretrained, drop_connect, smoothing)
        self.hidden = nn.Sequential(nn.Linear(self.width, hidden), nn.ReLU())
        self.linear = nn.Linear(hidden, outputs)

    def head(self, features: Tensor) -> Tensor:
        return self.linear(self.hidden(features))
