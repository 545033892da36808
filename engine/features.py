"""A frozen backbone is a function of the image, so its features are computed once and kept.

    features (V, N, F):   V augmented views of N images, F numbers each
    target, mask:         (V, N, ...) where they are maps, which an augmentation moves as well

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

    Only the view of the current epoch is in memory; without `resident`, only the batch is.
    """

    def __init__(
        self, path: Path, labels: NDArray | None, size: int | None = None, resident: bool = True
    ):
        self.path, self.resident = path, resident
        self.view, self.tables = -1, {}
        self.targets = None  # else they are in the file
        if labels is not None:
            self.targets = torch.from_numpy(np.ascontiguousarray(labels, dtype=np.float32))
        with h5py.File(path) as file:
            self.views, self.size = _array(file, "features").shape[:2]
        wanted = len(labels) if labels is not None else size
        if self.size != wanted:
            raise ValueError(
                f"{path}: holds features of {self.size} images, the split has {wanted}; remove "
                "the file, it is made again."
            )

    def __len__(self) -> int:
        return self.size

    def __getitems__(self, keys: Sequence[Key]) -> dict[str, Any]:
        view, index = keys[0][0] % self.views, torch.tensor([index for _, index in keys])
        if self.resident:
            self._open(view)
            rows = {name: table[index] for name, table in self.tables.items()}
        else:
            rows = self._read(view, index.tolist())
        if self.targets is not None:
            rows["target"] = self.targets[index]
        return {"input": rows.pop("features").float(), **rows, "meta": {"index": index}}

    def _open(self, view: int) -> None:
        if view != self.view:
            with h5py.File(self.path) as file:
                self.tables = {name: torch.from_numpy(_array(file, name)[view]) for name in file}
            self.view = view

    def _read(self, view: int, index: list[int]) -> dict[str, torch.Tensor]:
        """Rows straight from the file; evaluation asks for them in rising order, as HDF5 must."""
        with h5py.File(self.path) as file:
            return {name: torch.from_numpy(_array(file, name)[view, index]) for name in file}


def tables(
    fabric: Fabric, cfg: DictConfig, model: Any, splits: dict[str, Any], backbone: Path | None
) -> dict[str, FeatureTable]:
    """The cached splits, extracted now where they are missing from the images of `splits`."""
    views = {"train": cfg.features.views, "val": 1, "test": 1}
    plan = {split: views[split] for split in splits}
    about = _about(cfg, backbone)
    if backbone is None:
        about |= {"frozen": _digest(model)}
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
    return {split: _table(folder, split, splits[split]) for split in plan}


def _table(folder: Path, split: str, source: Any) -> FeatureTable:
    """Maps of a split that is only evaluated stay on disk, however many there are."""
    path = folder / f"{split}.h5"
    if not dense(source):
        return FeatureTable(path, source.labels)
    return FeatureTable(path, None, len(source), resident=split == "train")


def dense(dataset: Any) -> bool:
    """Whether the labels are maps, of which a dataset tells how often each label occurs."""
    return hasattr(dataset, "label_counts")


def _digest(model: Any) -> str:
    """A hash of the frozen weights, and of the shape of what they make."""
    digest = hashlib.sha256(repr(getattr(model, "shapes", None)).encode())
    state = model.state_dict()
    for key in sorted(model.constant_keys()):
        digest.update(np.ascontiguousarray(state[key].cpu().numpy()).tobytes())
    return digest.hexdigest()


def _about(cfg: DictConfig, backbone: Path | None) -> dict[str, Any]:
    data: Any = OmegaConf.to_container(cfg.dataset, resolve=True)
    return {
        "checkpoint": None if backbone is None else file_digest(backbone),
        "dataset": data,
        "files": files_of(data),
        "features": OmegaConf.to_container(cfg.features, resolve=True),
        "precision": str(cfg.trainer.precision),
    }


def extract(
    fabric: Fabric, model: Any, dataset: Any, path: Path, views: int, cfg: DictConfig
) -> None:
    """Write the (views, N, F) table of a dataset, going on from the shards that are there."""
    parts, size = path.with_suffix(".parts"), cfg.features.get("shard", SHARD)
    shards = [(view, start) for view in range(views) for start in range(0, len(dataset), size)]
    mine = [shard for shard in shards[fabric.global_rank :: fabric.world_size]]
    missing = [shard for shard in mine if not _part(parts, *shard).is_file()]
    keys = [
        [(view, index) for index in range(start, min(start + size, len(dataset)))]
        for view, start in missing
    ]
    rows = _rows(fabric, model, dataset, keys, cfg)
    show = fabric.is_global_zero and cfg.log.progress
    bar = tqdm(missing, desc=f"features of {path.stem}", disable=None if show else True)
    for shard, wanted in zip(bar, keys, strict=True):
        block = [next(rows) for _ in wanted]
        with whole(_part(parts, *shard)) as file, h5py.File(file, "w") as h5:
            for name in block[0]:
                h5[name] = np.stack([row[name] for row in block])
    fabric.barrier()
    if fabric.is_global_zero:
        _merge(parts, shards, path, views, len(dataset))
    fabric.barrier()


@torch.no_grad()
def _rows(
    fabric: Fabric, model: Any, dataset: Any, keys: list[list[Key]], cfg: DictConfig
) -> Iterator[dict[str, NDArray]]:
    """The features (F,) of the asked images, one after the other, with their target and mask where
    these are maps; shards do not share a batch."""
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
        rows = {"features": features.float().cpu().numpy().astype(cfg.features.dtype)}
        if dense(dataset):
            rows |= {name: batch[name].numpy() for name in ("target", "mask") if name in batch}
        for place in range(len(features)):
            yield {name: array[place] for name, array in rows.items()}


def _merge(parts: Path, shards: list[Key], path: Path, views: int, size: int) -> None:
    """All shards as one file, then the shards go."""
    with whole(path) as file, h5py.File(file, "w") as h5:
        for view, start in shards:
            with h5py.File(_part(parts, view, start)) as part:
                for name in part:
                    block = _array(part, name)
                    if name not in h5:
                        h5.create_dataset(name, (views, size, *block.shape[1:]), dtype=block.dtype)
                    _array(h5, name)[view, start : start + len(block)] = block[:]
    for shard in shards:
        _part(parts, *shard).unlink()
    parts.rmdir()


def _array(file: h5py.File, name: str) -> Any:
    return file[name]


def _part(parts: Path, view: int, start: int) -> Path:
    return parts / f"{view}-{start}.h5"
