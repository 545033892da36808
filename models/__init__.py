"""What is learnt: a backbone that makes features, and a head that turns them into label numbers."""

from models.depth import DepthNet
from models.depth_lite import LiteDepth
from models.efficientnet import EfficientNetLite0
from models.efficientnet_mlp import EfficientNetLite0MLP
from models.fds import FDS
from models.hmr import HMR, LiteHMR
from models.regressor import Regressor
from models.resnet import ResNet
from models.smpl import SMPL

__all__ = [
    "FDS",
    "HMR",
    "SMPL",
    "DepthNet",
    "EfficientNetLite0",
    "EfficientNetLite0MLP",
    "LiteDepth",
    "LiteHMR",
    "Regressor",
    "ResNet",
]
