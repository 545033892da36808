"""Speed of the loaders against plain PIL datasets, of cached features, and of the losses' share of
a training step."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import roma
import torch
from omegaconf import DictConfig, open_dict
from PIL import Image
from torch.utils.benchmark import Timer
from torchvision.transforms import ColorJitter
from torchvision.transforms.functional import to_tensor

from datasets.ages import AgeDataset, pack, read_csv
from datasets.depth import bin_centers
from datasets.ihmr import FIELDS
from datasets.nyud2 import DepthDataset
from engine.benchmarks.bodies.metrics import BodyMetrics
from engine.runs.run import composed, first_stage, run
from engine.speed.timing import Compare, Row, Step, backward
from engine.training import build
from engine.training.fabric import make_fabric
from engine.training.loop import Loop
from losses import BMC, BalancedLoss, Gaussian, GaussianMixture
from models.hmr import HMR
from synthetic.mini.body import write_body
from synthetic.mini.faces import write_faces
from synthetic.mini.rooms import depth_frequencies, write_rooms


def loader(cfg: DictConfig, compare: Compare) -> Iterator[Row]:
    """Milliseconds per image of the age loader, from files and packed, against PIL."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "faces"
        write_faces(root, cfg.images, cfg.side, cap=1, seed=0)
        csv, store = root / "imdb_wiki.csv", Path(folder) / "store"
        pack(csv, root, store, cfg.size)
        paths = [row.path for row in read_csv(csv) if row.split == "train"]

        def plain(index: int) -> torch.Tensor:
            with Image.open(root / paths[index]) as image:
                return to_tensor(image.convert("RGB").resize((cfg.size, cfg.size)))

        for name, source in {"files": None, "store": store}.items():
            for augment in (False, True):
                ours = AgeDataset(csv, root, "train", cfg.size, augment, source)
                title = f"{name}, augmented" if augment else name
                yield per_item(compare, title, ours.__getitem__, plain, len(paths))


def per_item(compare: Compare, name: str, ours: Any, other: Any, count: int) -> Row:
    """Time passes over `count` items of a loader against PIL."""
    passes = [lambda get=get: [get(i) for i in range(count)] for get in (ours, other)]
    return compare(name, passes[0], "PIL", passes[1], items=count)


def once(step: Step) -> float:
    """Return the seconds of one call, for steps too long to repeat."""
    return Timer("step()", globals={"step": step}).timeit(1).mean


def features(cfg: DictConfig, compare: Compare) -> Iterator[Row]:
    """An epoch of stage 2 on cached features against one through the frozen backbone."""
    own = composed("train", [*cfg.overrides, f"trainer.epoch_size={cfg.images}"])
    stage1 = first_stage(own)
    if stage1 is None or own.features.mode != "cached":
        raise SystemExit("overrides: expected a stage-2 experiment and a preset that caches.")
    backbone = Path(run(stage1)["folder"]) / "checkpoints" / "best.pt"

    def epoch(mode: str, folder: Path) -> Any:
        changed = own.copy()
        with open_dict(changed):
            changed.log.every = 10**9
            changed.features = own.features if mode == "cached" else {"mode": "none"}
        loop = Loop(make_fabric(changed), changed, folder / mode, backbone)

        def step() -> None:
            loop.train_epoch()
            loop.epoch, loop.step = loop.epoch + 1, 0

        return step

    with tempfile.TemporaryDirectory() as folder:
        ours, other = (epoch(mode, Path(folder)) for mode in ("cached", "none"))
        yield compare(f"stage-2 epoch of {cfg.images} images", ours, "through the backbone", other)


class PlainDepth:
    """Loads depth with PIL, and weights with a Python function per pixel, as the released code."""

    def __init__(self, files: list, weights: list[float]):
        self.files, self.weights, self.jitter = files, weights, ColorJitter(0.4, 0.4, 0.4)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        image, depth = (Image.open(path) for path in self.files[index])
        image = image.resize((320, 240), Image.Resampling.BILINEAR)
        depth = depth.resize((320, 240), Image.Resampling.NEAREST)
        if random.random() < 0.5:
            image, depth = (x.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for x in (image, depth))
        angle, box = random.uniform(-5, 5), (8, 6, 312, 234)
        image = image.rotate(angle, Image.Resampling.BILINEAR).crop(box)
        depth = depth.rotate(angle).crop(box).resize((152, 114), Image.Resampling.NEAREST)
        metres = to_tensor(depth) * 10
        weights = torch.tensor([self.weight_of(d) for d in metres.numpy().ravel()])
        return to_tensor(self.jitter(image)), metres, weights.reshape(metres.shape)

    def weight_of(self, depth: np.float32) -> float:
        return self.weights[min(int(depth * np.float32(10)), 99)]


def depth(cfg: DictConfig, compare: Compare) -> Iterator[Row]:
    """The depth loader against PIL, and each loss on full maps against a training step."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "rooms"
        write_rooms(root, cfg.frames, 1, seed=0)
        for path in root.glob("nyu2_train/*/*"):  # to NYU's size
            image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
            cv2.imwrite(str(path), cv2.resize(image, (640, 480), interpolation=0))  # pyright: ignore
        data, table = DepthDataset(root, "train", (114, 152)), torch.rand(100)
        plain = PlainDepth(data.frames.files, table.tolist())  # pyright: ignore

        def ours(index: int) -> torch.Tensor:
            return table[(data[index]["target"] * 10).long().clamp(max=99)]

        yield per_item(compare, "loader", ours, plain.__getitem__, cfg.frames)
    counts, step = (1e9 * depth_frequencies()).astype(np.int64), 0.0
    target = 0.7 + 9.3 * torch.rand(cfg.batch, 1, 114, 152)
    for row in ("vanilla", "bni", "gai", "histogram"):
        own = [f"experiment=nyud2/{row}", f"model=depth_resnet{cfg.resnet}", "model.weights=null"]
        task: Any = build.task(composed("train", own), bin_centers()[:, None], None, counts).train()
        if not step:  # the network is the same for all rows
            batch = {"input": torch.randn(cfg.batch, 3, 228, 304), "target": target}
            step = once(lambda: task(batch)[0].backward())  # noqa: B023
        pred = torch.rand(target.numel(), task.loss.likelihood.width(1))
        loss = backward(task.loss, pred, target.reshape(-1, 1))
        yield compare(f"{row} loss, {cfg.batch} maps", loss, "training step", step)


def bodies(cfg: DictConfig, compare: Compare) -> Iterator[Row]:
    """The balanced terms against a training step of the head, and evaluation in chunks."""
    torch.manual_seed(0)
    rotations = roma.rotvec_to_rotmat(0.4 * torch.randn(2000, 24, 3))  # (2000, 24, 3, 3)
    poses, noise = rotations.flatten(1), Gaussian(1.0, learn_sigma=True)
    mixture = GaussianMixture.fit(poses, cfg.components, regularisation=0.01)
    gai, bmc = BalancedLoss(noise, mixture, strength=0.25), BMC(1.0, True, strength=0.25)
    target = poses[: cfg.batch]
    pred = target + 0.1 * torch.randn_like(target)
    steps = [backward(loss, pred, target) for loss in (gai, bmc)]
    yield compare(f"GAI, {cfg.batch} poses", steps[0], "BMC", steps[1])
    model = HMR().freeze(freeze_bn=True).train()
    images = torch.randn(cfg.batch, 3, cfg.image, cfg.image)
    head = once(lambda: gai(model(images)[0].flatten(1), target).backward())
    yield compare(f"GAI, {cfg.batch} poses", steps[0], "head training step", head)
    with tempfile.TemporaryDirectory() as folder:
        write_body(Path(folder), np.tile(np.eye(3), (24, 1, 1)))
        person = torch.zeros(cfg.people, sum(FIELDS.values()))
        person[:, :216] = poses[torch.arange(cfg.people) % len(poses)]
        wrong = torch.cat([person[:, :216].roll(1, 0), torch.zeros(cfg.people, 13)], 1)

        def evaluate(chunk: int) -> Any:
            mean = Path(folder, "smpl_mean_params.npz")
            metrics = BodyMetrics(folder, mean, "neutral", chunk)
            return lambda: metrics.update(wrong, person)

        ours, other = evaluate(cfg.chunk), evaluate(cfg.people)
        yield compare(f"evaluation in chunks of {cfg.chunk}", ours, "one chunk", other, memory=True)
