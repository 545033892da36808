"""What is learnt: a backbone that makes features, and a head that turns them into label numbers."""

from models.depth import DepthNet
from models.depth_lite import LiteDepth
from models.efficientnet import EfficientNetLite0
from models.fds import FDS
from models.regressor import Regressor
from models.resnet import ResNet

__all__ = ["FDS", "DepthNet", "EfficientNetLite0", "LiteDepth", "Regressor", "ResNet"]
