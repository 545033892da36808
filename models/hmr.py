"""HMR, the network of SPIN: image features, then a regressor that corrects its own estimate.

    (theta, beta, cam)_0 = mean parameters
    (theta, beta, cam)_i+1 = (theta, beta, cam)_i + dec(drop(fc2(drop(fc1([features, ..._i])))))

Three iterations; there is no activation between the layers. theta is 24 rotations of six numbers
each. Stage 2 (SPIN-RT and every Balanced MSE row) keeps the features and trains a new regressor.

N: images; F: feature width.
"""

from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.efficientnet import EfficientNetLite0
from models.regressor import Regressor
from models.released import fill
from models.resnet import ResNet, add_layers
from models.smpl import matrix_from_6d, read_mean

POSE, SHAPE, CAMERA = 144, 10, 3


class MeshRegressor(Regressor):
    """Iterative regressor on F features; a subclass defines `features`.

    Arguments:
        width: F.
        mean: smpl_mean_params.npz; None starts without rotations, for a checkpoint to fill.
        hidden: width of the two layers; SPIN's is 1024.
        dropout: after each of the two layers.
        iterations: number of corrections.
        outputs: the likelihood's width, which must be that of a pose.
    """

    head_names = ("fc1", "drop1", "fc2", "drop2", "decpose", "decshape", "deccam")

    def __init__(
        self,
        width: int,
        mean: str | Path | None = None,
        hidden: int = 1024,
        dropout: float = 0.5,
        iterations: int = 3,
        outputs: int = 216,
    ):
        super().__init__(width)
        if outputs != 216:
            raise ValueError(
                "a body's pose is 24 rotation matrices, 216 numbers; this likelihood needs "
                f"{outputs} outputs. Use a Gaussian, Laplace or Huber likelihood."
            )
        self.iterations = iterations
        self.fc1 = nn.Linear(width + POSE + SHAPE + CAMERA, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.drop1, self.drop2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.decpose = nn.Linear(hidden, POSE)
        self.decshape = nn.Linear(hidden, SHAPE)
        self.deccam = nn.Linear(hidden, CAMERA)
        self.reset_head()
        identity = torch.eye(3)[:, :2].reshape(-1).repeat(24)
        start = identity, torch.zeros(SHAPE), torch.tensor([0.9, 0.0, 0.0])
        pose, shape, camera = start if mean is None else read_mean(mean)
        self.init_pose, self.init_shape = nn.Buffer(pose[None]), nn.Buffer(shape[None])
        self.init_cam = nn.Buffer(camera[None])

    def reset_head(self) -> None:
        """Initialise the regressor."""
        for layer in (self.fc1, self.fc2, self.decpose, self.decshape, self.deccam):
            layer.reset_parameters()
        for layer in (self.decpose, self.decshape, self.deccam):
            nn.init.xavier_uniform_(layer.weight, gain=0.01)

    def freeze(self, freeze_bn: bool) -> Self:
        """Start stage 2: keep the features, train a new regressor."""
        self.reset_head()
        return super().freeze(freeze_bn)

    def head(self, features: Tensor, *, with_features: bool = False) -> Any:
        """(N, F) -> rotations (N, 24, 3, 3), shape (N, 10), camera (N, 3); and (N, F) if asked."""
        starts = self.init_pose, self.init_shape, self.init_cam
        pose, shape, camera = (start.expand(len(features), -1) for start in starts)
        seen, guessed = self.fc1.weight.split([self.width, POSE + SHAPE + CAMERA], 1)
        from_image = functional.linear(features, seen, self.fc1.bias)  # the same in each iteration
        for _ in range(self.iterations):
            x = from_image + functional.linear(torch.cat([pose, shape, camera], 1), guessed)
            x = self.drop2(self.fc2(self.drop1(x)))
            pose = pose + self.decpose(x)
            shape = shape + self.decshape(x)
            camera = camera + self.deccam(x)
        bodies = matrix_from_6d(pose.unflatten(-1, (24, 6))), shape, camera
        return (bodies, features) if with_features else bodies


class HMR(MeshRegressor):
    """ResNet-50 features in SPIN's layout; weights: its model_checkpoint.pt, or None."""

    def __init__(self, weights: str | Path | None = None, **options):
        super().__init__(2048, **options)
        add_layers(self, 50)
        if weights is not None:
            fill(self, weights, "spin")

    features = ResNet.features


class LiteHMR(MeshRegressor):
    """EfficientNet-Lite0's middle layers with ImageNet's weights, for a laptop.

    A pose is about where the limbs are, so the features keep their grid: 112 channels at a
    sixteenth of the image's side, averaged to grid x grid cells. They are standardised before the
    regressor, which speeds up its training.

    Arguments:
        pretrained: ImageNet's weights.
        grid: cells per side.
        kept: number of blocks that keep ImageNet's weights, with the layer before them. The first
            ones detect edges and colours, and take most of the time.
        weights: a file of scripts/save_network.py to start from, or None.
    """

    head_names = (*MeshRegressor.head_names, "norm")

    def __init__(
        self, pretrained: bool, grid: int, kept: int, weights: str | Path | None = None, **options
    ):
        super().__init__(112 * grid * grid, **options)
        self.grid, self.kept = grid, kept
        self.trunk = EfficientNetLite0(1, pretrained).trunk
        del self.trunk._blocks[11:], self.trunk._conv_head, self.trunk._bn1
        for layer in self._first():
            layer.requires_grad_(False)
        self.norm = nn.BatchNorm1d(self.width, affine=False)
        if weights is not None:
            fill(self, weights, "lite")

    def _first(self) -> list[nn.Module]:
        """Return the layers that keep their weights and batch-norm statistics."""
        trunk = self.trunk
        return [trunk._conv_stem, trunk._bn0, trunk._swish, *trunk._blocks[: self.kept]]

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for layer in self._first():
            layer.eval()
        return self

    def features(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 112 grid^2)."""
        with torch.no_grad():
            for layer in self._first():
                x = layer(x)
        for block in self.trunk._blocks[self.kept :]:
            x = block(x)
        return functional.adaptive_avg_pool2d(x, self.grid).flatten(1)

    def head(self, features: Tensor, *, with_features: bool = False) -> Any:
        return super().head(self.norm(features), with_features=with_features)
