"""A frozen backbone is a function of the image, so its features are computed once and kept.

    features (V, N, F), targets (V, N, T):   V augmented views of N images, F numbers each

An augmentation may change the label as well (a mirrored pose), so each view has its own.
Epoch e of a head's training then reads view e mod V of its batch instead of running the backbone.
The tables are HDF5 files in a folder whose name is a hash of what they depend on: the backbone's
checkpoint, the dataset and its transform, the views. They are made shard by shard, each written
whole, so an interrupted extraction goes on where it stopped; several ranks share the shards.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from engine import build
from engine.batches import Key, Keyed
from engine.files import whole
from engine.folder import file_digest, files_of, locked

SHARD = 2048  # images


class FeatureTable(Dataset):
    """A cached split: asked for keys (epoch, index) of one epoch, it gives their batch at once.

    Only the view of the current epoch is in memory.
    """

    def __init__(self, path: Path, labels: NDArray):
        self.path, self.labels = path, labels
        self.view, self.table, self.targets = -1, torch.empty(0), torch.empty(0)
        with h5py.File(path) as file:
            self.views, size = file["features"].shape[:2]  # pyright: ignore
        if size != len(labels):
            raise ValueError(
                f"{path}: holds features of {size} images, the split has {len(labels)}; remove the "
                "file, it is made again."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, keys: Sequence[Key]) -> dict[str, Any]:
        self._open(keys[0][0] % self.views)
        index = torch.tensor([index for _, index in keys])
        return {
            "input": self.table[index],
            "target": self.targets[index],
            "meta": {"index": index},
        }

    def _open(self, view: int) -> None:
        if view != self.view:
            with h5py.File(self.path) as file:
                tables: Any = file["features"], file["targets"]
                self.table, self.targets = (
                    torch.from_numpy(rows[view].astype(np.float32)) for rows in tables
                )
            self.view = view


def tables(
    fabric: Fabric, cfg: DictConfig, model: Any, splits: dict[str, Any], backbone: Path
) -> dict[str, FeatureTable]:
    """The cached splits, extracted now where they are missing from the images of `splits`."""
    plan = {"train": cfg.features.views, "val": 1, "test": 1}
    about = _about(cfg, backbone)
    text = json.dumps(about, sort_keys=True, default=str)
    folder = Path(cfg.paths.outputs) / "features" / hashlib.sha256(text.encode()).hexdigest()[:12]
    with locked(folder, fabric.is_global_zero):
        fabric.barrier()
        if fabric.is_global_zero:
            with whole(folder / "about.json") as file:
                file.write(json.dumps(about, indent=2, default=str).encode())
        for split, views in plan.items():
            if (folder / f"{split}.h5").is_file():
                continue
            source = splits[split]
            if split == "train":
                source = build.dataset(cfg, "train", augment=cfg.features.augment)
            extract(fabric, model, source, folder / f"{split}.h5", views, cfg)
        fabric.barrier()
    return {split: FeatureTable(folder / f"{split}.h5", splits[split].labels) for split in plan}


def _about(cfg: DictConfig, backbone: Path) -> dict[str, Any]:
    data: Any = OmegaConf.to_container(cfg.dataset, resolve=True)
    return {
        "checkpoint": file_digest(backbone),
        "dataset": data,
        "files": files_of(data),
        "features": OmegaConf.to_container(cfg.features, resolve=True),
        "precision": str(cfg.trainer.precision),
        "holds": ["features", "targets"],
    }


def extract(
    fabric: Fabric, model: Any, dataset: Any, path: Path, views: int, cfg: DictConfig
) -> None:
    """Write the (views, N, F) table of a dataset, going on from the shards that are there."""
    parts = path.with_suffix(".parts")
    shards = [(view, start) for view in range(views) for start in range(0, len(dataset), SHARD)]
    mine = [shard for shard in shards[fabric.global_rank :: fabric.world_size]]
    missing = [shard for shard in mine if not _part(parts, *shard).is_file()]
    keys = [
        [(view, index) for index in range(start, min(start + SHARD, len(dataset)))]
        for view, start in missing
    ]
    rows = _rows(fabric, model, dataset, keys, cfg)
    show = fabric.is_global_zero and cfg.log.progress
    bar = tqdm(missing, desc=f"features of {path.stem}", disable=None if show else True)
    for shard, wanted in zip(bar, keys, strict=True):
        block, targets = map(np.stack, zip(*(next(rows) for _ in wanted), strict=True))
        with whole(_part(parts, *shard)) as file, h5py.File(file, "w") as h5:
            h5["features"] = block.astype(cfg.features.dtype)
            h5["targets"] = targets
    fabric.barrier()
    if fabric.is_global_zero:
        _merge(parts, shards, path, views, len(dataset))
    fabric.barrier()


@torch.no_grad()
def _rows(
    fabric: Fabric, model: Any, dataset: Any, keys: list[list[Key]], cfg: DictConfig
) -> Iterator[tuple[NDArray, NDArray]]:
    """Features (F,) and target (T,) of the asked images, one after the other; shards do not share
    a batch."""
    size = cfg.features.batch_size
    batches = [shard[at : at + size] for shard in keys for at in range(0, len(shard), size)]
    loader = DataLoader(
        Keyed(dataset, cfg.features.seed),
        batch_sampler=batches,
        num_workers=cfg.trainer.workers,
        generator=torch.Generator(),
    )
    model = fabric.to_device(model).eval()
    form = torch.channels_last if cfg.trainer.channels_last else torch.contiguous_format
    for batch in loader:
        images = fabric.to_device(batch["input"]).to(memory_format=form)
        with fabric.autocast():
            features = model.features(images)
        yield from zip(features.float().cpu().numpy(), batch["target"].numpy(), strict=True)


def _merge(parts: Path, shards: list[Key], path: Path, views: int, size: int) -> None:
    """All shards as one file, then the shards go."""
    with whole(path) as file, h5py.File(file, "w") as h5:
        for view, start in shards:
            with h5py.File(_part(parts, view, start)) as part:
                for name, block in part.items():
                    if name not in h5:
                        shape = (views, size, *block.shape[1:])
                        h5.create_dataset(name, shape, dtype=block.dtype)
                    table: Any = h5[name]
                    table[view, start : start + len(block)] = block[:]
    for shard in shards:
        _part(parts, *shard).unlink()
    parts.rmdir()


def _part(parts: Path, view: int, start: int) -> Path:
    return parts / f"{view}-{start}.h5"
