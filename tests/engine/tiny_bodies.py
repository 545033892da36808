"""A model of bodies and a config small enough to train in a fraction of a second."""

from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from engine.runs.run import composed
from models.hmr import MeshRegressor


class TinyHMR(MeshRegressor):
    def __init__(self, **options):
        super().__init__(8, hidden=16, **options)
        self.conv = nn.Conv2d(3, 8, 3, stride=4)

    def features(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x)).mean((-2, -1))


def config(data: Path, outputs: Path, experiment: str, *overrides: str) -> DictConfig:
    """An ihmr experiment with a tiny model, two steps an epoch, two epochs."""
    cfg = composed(
        "train",
        [
            f"experiment={experiment}",
            "preset=laptop",
            "paths=mini",
            "dataset.size=32",
            "trainer.epochs=2",
            "trainer.batch_size=24",
            "trainer.workers=0",
            "trainer.accelerator=cpu",
            "log.progress=false",
            "log.figures=false",
            "log.every=1",
            "trust=[tests]",
            "components=2",
            *(
                f"{'+' if experiment == 'ihmr/spin' else ''}{setting}"
                for setting in ("subspace=null", "per_dimension=false")
            ),
            "task.overshoot=100",  # two steps from random weights are no training
            *overrides,
        ],
    )
    with open_dict(cfg):
        for key, folder in (("data", data), ("outputs", outputs)):
            if not any(text.startswith(f"paths.{key}=") for text in overrides):
                cfg.paths[key] = str(folder)
        cfg.model = OmegaConf.create(
            {"_target_": "tests.engine.tiny_bodies.TinyHMR", "mean": cfg.model.mean}
        )
        if cfg.backbone is not None:
            cfg.backbone.overrides = [
                "trainer.epochs=1",
                "trainer.batch_size=24",
                "task.overshoot=100",
            ]
        if cfg.get("sweep") is not None:
            cfg.sweep.among = [0.125]
    return cfg
