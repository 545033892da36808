"""A model of bodies and a config small enough to train in a fraction of a second."""

from pathlib import Path

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from models.hmr import MeshRegressor
from tests.engine.tiny import small


class TinyHMR(MeshRegressor):
    def __init__(self, **options):
        super().__init__(8, hidden=16, **options)
        self.conv = nn.Conv2d(3, 8, 3, stride=4)

    def features(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x)).mean((-2, -1))


def config(data: Path, outputs: Path, experiment: str, *overrides: str) -> DictConfig:
    """An ihmr experiment with a tiny model, two steps an epoch, two epochs."""
    new = "+" if experiment == "ihmr/spin" else ""
    first = [
        *("preset=laptop", "paths=mini", "dataset.size=32", "trainer.batch_size=24"),
        *("components=2", f"{new}subspace=null", f"{new}per_dimension=false"),
        "task.overshoot=100",  # two steps from random weights are no training
    ]
    cfg = small(data, outputs, "tiny_bodies.TinyHMR", experiment, first, *overrides)
    if cfg.backbone is not None:
        cfg.backbone.overrides += ["task.overshoot=100"]
    if cfg.get("sweep") is not None:
        cfg.sweep.among = [0.125]
    return cfg
