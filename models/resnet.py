"""ResNet with a regression head, torchvision's layers under the names of the released checkpoints.

    image (N, 3, H, W) -> conv1 bn1 relu maxpool layer1..4 -> global mean (N, F) -> linear (N, W)

F is 512 for ResNet-18 and -34, 2048 for ResNet-50. The label is raw (years), nothing is rescaled.
"""

from pathlib import Path

import torch
import torchvision
from torch import Tensor, nn

from models.regressor import Regressor, Smoothing

DEPTHS = {
    18: torchvision.models.resnet18,
    34: torchvision.models.resnet34,
    50: torchvision.models.resnet50,
}


class ResNet(Regressor):
    """ResNet-18, -34 or -50 with `outputs` numbers per image.

    Arguments:
        depth: 18, 34 or 50.
        outputs: the width that the likelihood asks for.
        weights: a torchvision state dict on disk (ImageNet), or None for random weights, as in DIR.
    """

    def __init__(
        self,
        depth: int = 50,
        outputs: int = 1,
        weights: str | None = None,
        smoothing: Smoothing | None = None,
    ):
        if depth not in DEPTHS:
            raise ValueError(f"ResNet has depths {sorted(DEPTHS)}, got {depth}")
        trunk = DEPTHS[depth](weights=None)
        super().__init__(trunk.fc.in_features, smoothing)
        self.conv1, self.bn1 = trunk.conv1, trunk.bn1
        self.relu, self.maxpool = trunk.relu, trunk.maxpool
        self.layer1, self.layer2 = trunk.layer1, trunk.layer2
        self.layer3, self.layer4 = trunk.layer3, trunk.layer4
        self.linear = nn.Linear(self.width, outputs)
        if weights is not None:
            self.read_imagenet(weights)

    def features(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((-2, -1))

    def head(self, features: Tensor) -> Tensor:
        return self.linear(features)

    def read_imagenet(self, path: str) -> None:
        """Take the backbone from a torchvision checkpoint; its classifier `fc` is left behind."""
        if not Path(path).is_file():
            raise FileNotFoundError(
                f"{path}: no such ImageNet weights; download torchvision's resnet file, or set "
                "model.weights=null to start from random weights."
            )
        state = torch.load(path, map_location="cpu", weights_only=True)
        state = {key: value for key, value in state.items() if not key.startswith("fc.")}
        missing, unexpected = self.load_state_dict(state, strict=False)
        missing = [key for key in missing if not self.in_head(key)]
        if missing or unexpected:
            raise ValueError(
                f"{path}: expected torchvision's ResNet weights of the same depth; missing "
                f"{missing[:3]}, unexpected {unexpected[:3]}."
            )
