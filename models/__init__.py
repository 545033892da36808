"""What is learnt: a backbone that makes features, and a head that turns them into label numbers."""

from models.efficientnet import EfficientNetLite0
from models.fds import FDS
from models.regressor import Regressor
from models.resnet import ResNet

__all__ = ["FDS", "EfficientNetLite0", "Regressor", "ResNet"]
