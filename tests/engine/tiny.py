"""A dataset, a model and a config small enough to train in a fraction of a second."""

import csv
from pathlib import Path

import cv2
import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from engine import CONFIGS
from engine.runs.run import composed
from models.depth import DenseRegressor
from models.regressor import Head, Regressor, Smoothing

SIZE = 16
EXPERIMENTS = sorted(
    str(path.relative_to(CONFIGS / "experiment").with_suffix(""))
    for path in (CONFIGS / "experiment").rglob("*.yaml")
)
COMMON = [
    *("trainer.epochs=2", "trainer.workers=0", "trainer.accelerator=cpu", "trust=[tests]"),
    *("log.progress=false", "log.figures=false", "log.every=1"),
]
MODEL = ("model._target_=tests.engine.tiny.TinyNet", "~model.pretrained", "~model.drop_connect")


class TinyNet(Regressor):
    """A convolution with batch-norm and dropout: batch statistics and random numbers matter."""

    def __init__(
        self,
        outputs: int = 1,
        dropout: float = 0.2,
        head: Head | None = None,
        smoothing: Smoothing | None = None,
    ):
        super().__init__(8, smoothing)
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.bn = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(dropout)
        self.add_head(outputs, head)

    def features(self, x: Tensor) -> Tensor:
        return self.dropout(torch.relu(self.bn(self.conv(x))).mean((-2, -1)))


class TinyMaps(DenseRegressor):
    """A frozen convolution to 1/8 of the size and two learned 1x1 layers: (N, 3, H, W) -> maps."""

    head_names = ("inner", "out", "smoothing")
    always_frozen = True

    def __init__(self, outputs: int = 1, smoothing: Smoothing | None = None):
        super().__init__(4, smoothing)
        self.conv = nn.Conv2d(3, 6, 8, stride=8)
        self.inner, self.out = nn.Conv2d(6, 4, 1), nn.Conv2d(4, outputs, 1)
        self.freeze(freeze_bn=True)

    def features(self, x: Tensor) -> Tensor:
        return self.conv(x).flatten(1)

    def decode(self, features: Tensor) -> Tensor:
        return torch.relu(self.inner(features.unflatten(1, (6, 28, 38))))

    def last(self, maps: Tensor) -> Tensor:
        return self.out(maps)


def write_faces(folder: Path, train: int = 48, other: int = 12, seed: int = 0) -> Path:
    """Images whose brightness tells the age, in the layout of the real data."""
    rng = np.random.default_rng(seed)
    root = folder / "imdb_wiki"
    (root / "faces").mkdir(parents=True)
    rows = []
    for split, count in (("train", train), ("val", other), ("test", other)):
        for number in range(count):
            age = int(np.clip(rng.normal(35, 12), 0, 100))
            image = rng.integers(0, 40, (SIZE, SIZE, 3)) + 2 * age
            path = f"faces/{split}{number}.jpg"
            assert cv2.imwrite(str(root / path), image.astype(np.uint8))
            rows.append((age, path, split))
    with (root / "imdb_wiki.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("age", "path", "split"), *rows])
    return folder


def small(
    data: Path, outputs: Path, model: str, experiment: str, first: list[str], *overrides: str
) -> DictConfig:
    """An experiment with a tiny model, on the CPU, two epochs."""
    cfg = composed("train", [f"experiment={experiment}", *COMMON, *first, *overrides])
    with open_dict(cfg):
        for key, folder in (("data", data), ("outputs", outputs)):
            if not any(text.startswith(f"paths.{key}=") for text in overrides):
                cfg.paths[key] = str(folder)
        kept = {key: cfg.model[key] for key in ("smoothing", "mean") if cfg.model.get(key)}
        cfg.model = OmegaConf.create({"_target_": f"tests.engine.{model}", **kept})
        if cfg.backbone is not None:
            cfg.backbone.overrides = ["trainer.epochs=1", "trainer.batch_size=24"]
    return cfg


def config(
    data: Path, outputs: Path, experiment: str = "imdb_wiki/vanilla", *overrides: str
) -> DictConfig:
    """An age experiment on tiny images, two steps an epoch."""
    first = [f"dataset.size={SIZE}", "trainer.batch_size=24"]
    return small(data, outputs, "tiny.TinyNet", experiment, first, *overrides)


def depth_config(
    data: Path, outputs: Path, experiment: str = "nyud2/vanilla", *overrides: str
) -> DictConfig:
    """A depth experiment on eight rooms, two steps an epoch."""
    first = ["dataset.output=[28,38]", "components=2", "trainer.batch_size=4"]
    cfg = small(data, outputs, "tiny.TinyMaps", experiment, first, *overrides)
    if cfg.choose is not None:
        cfg.choose.among = cfg.choose.among[:2]
        cfg.choose.settings = {"seed": 0, "dataset.validation": 0.5}
    return cfg


def tiny(faces: Path, outputs: Path) -> list[str]:
    """Overrides that make a laptop preset tiny."""
    return [
        *COMMON,
        f"paths.data={faces}",
        f"paths.outputs={outputs}",
        f"dataset.size={SIZE}",
        *MODEL,
        "trainer.epochs=1",
        "trainer.batch_size=24",
    ]


class TinyRegularizer(nn.Module):
    """weight |scale mean(features) + mean(pred) - mean(target)| with a counter, for the slot."""

    calls: Tensor
    mean_label: Tensor

    def __init__(self, weight: float):
        super().__init__()
        self.weight, self.scale = weight, nn.Parameter(torch.ones(()))
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean_label", torch.zeros(()))

    def fit(self, labels: np.ndarray, sample_weight: np.ndarray | None = None) -> None:
        self.mean_label.fill_(float(np.average(labels[:, 0], weights=sample_weight)))

    def forward(self, features: Tensor, pred: Tensor, target: Tensor) -> Tensor:
        self.calls += 1
        return self.weight * (self.scale * features.mean() + pred.mean() - target.mean()).abs()
