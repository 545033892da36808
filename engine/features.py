"""A frozen backbone is a function of the image, so its features are computed once and kept.

    features (V, N, ...)        of V augmented views of N images
    target, mask (V, N, ...)    an augmentation may change the label as well (a mirrored pose)

Epoch e of a head's training then reads view e mod V of its batch instead of running the backbone.
The tables are HDF5 files in a folder whose name is a hash of what they depend on: the backbone's
checkpoint (or its weights, where it is fixed from the start), the dataset and its transform, the
views. Where part of the training maps may be held out, all are in the table and a split reads its
own rows. They are made shard by shard, each written whole, so an interrupted extraction goes on
where it stopped; several ranks share the shards.
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
from torch.utils.data import Dataset
from tqdm import tqdm

from datasets.files import whole
from engine import build
from engine.batches import Key, Keyed, loader
from engine.runs import file_digest, files_of, locked

SHARD = 2048  # images


class FeatureTable(Dataset):
    """A cached split: asked for keys (epoch, index) of one epoch, it gives their batch at once.

    Only the view of the current epoch is in memory; without `resident`, only the batch is.
    `rows` are the table's rows that make up the split, by default all of them.
    """

    def __init__(
        self,
        path: Path,
        size: int,
        rows: Sequence[int] | None = None,
        resident: bool = True,
    ):
        self.path, self.resident, self.rows = path, resident, rows
        self.view = -1
        self.tables: dict[str, torch.Tensor] = {}
        with h5py.File(path) as file:
            self.views, found = _array(file, "features").shape[:2]
        self.size = size
        if size != (found if rows is None else len(rows)):
            raise ValueError(
                f"{path}: holds features of {found} images, the split has {size}; remove the file, "
                "it is made again."
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
        return {"input": rows.pop("features").float(), **rows, "meta": {"index": index}}

    def _open(self, view: int) -> None:
        if view != self.view:
            with h5py.File(self.path) as file:
                part = slice(None) if self.rows is None else list(self.rows)
                self.tables = {
                    k: torch.from_numpy(_array(file, k)[view, part]) for k in _names(file)
                }
            self.view = view

    def _read(self, view: int, index: list[int]) -> dict[str, torch.Tensor]:
        """Rows straight from the file; evaluation asks for them in rising order, as HDF5 must."""
        with h5py.File(self.path) as file:
            return {k: torch.from_numpy(_array(file, k)[view, index]) for k in _names(file)}


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
            path = _path(folder, split, cfg)
            if path.is_file():
                continue
            source = splits[split]
            if split == "train":
                changes: dict[str, Any] = {"validation": None} if dense(source) else {}
                source = build.dataset(cfg, "train", augment=cfg.features.augment, **changes)
            extract(fabric, model, source, path, views, cfg)
        fabric.barrier()
    return {split: _table(_path(folder, split, cfg), split, splits[split]) for split in plan}


def _path(folder: Path, split: str, cfg: DictConfig) -> Path:
    held_out = cfg.dataset.get("validation") if split == "val" else None
    return folder / f"{split}.h5" if held_out is None else folder / f"{split}_{held_out}.h5"


def _table(path: Path, split: str, source: Any) -> FeatureTable:
    """Maps of a split that is only evaluated stay on disk, however many there are."""
    if not dense(source):
        return FeatureTable(path, len(source))
    if split == "train":
        return FeatureTable(path, len(source), source.numbers)
    return FeatureTable(path, len(source), resident=False)


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
    data.pop("validation", None)
    return {
        "checkpoint": None if backbone is None else file_digest(backbone),
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
    """The features (F,) of the asked images, one after the other, with their target and mask;
    shards do not share a batch.
    """
    size = cfg.features.batch_size
    batches = [shard[at : at + size] for shard in keys for at in range(0, len(shard), size)]
    images_of = loader(Keyed(dataset, cfg.features.seed), batches, cfg.trainer.workers)
    model = fabric.to_device(model).eval()
    form = torch.channels_last if cfg.trainer.channels_last else torch.contiguous_format
    for batch in images_of:
        images = fabric.to_device(batch["input"]).to(memory_format=form)
        with fabric.autocast():
            features = model.features(images)
        rows = {"features": features.float().cpu().numpy().astype(cfg.features.dtype)}
        rows |= {name: batch[name].numpy() for name in ("target", "mask") if name in batch}
        for place in range(len(features)):
            yield {name: array[place] for name, array in rows.items()}


def _merge(parts: Path, shards: list[Key], path: Path, views: int, size: int) -> None:
    """All shards as one file, then the shards go."""
    with whole(path) as file, h5py.File(file, "w") as h5:
        for view, start in shards:
            with h5py.File(_part(parts, view, start)) as part:
                for name in _names(part):
                    block = _array(part, name)
                    if name not in h5:
                        h5.create_dataset(name, (views, size, *block.shape[1:]), dtype=block.dtype)
                    _array(h5, name)[view, start : start + len(block)] = block[:]
    for shard in shards:
        _part(parts, *shard).unlink()
    parts.rmdir()


def _names(file: h5py.File) -> list[str]:
    return [str(name) for name in file]


def _array(file: h5py.File, name: str) -> Any:
    return file[name]


def _part(parts: Path, view: int, start: int) -> Path:
    return parts / f"{view}-{start}.h5"
