"""A frozen backbone is a function of the image, so its features are computed once and stored.

The tables (feature_table.py) are HDF5 files in a folder whose name is a hash of what they depend
on: the backbone's checkpoint (or its weights, where it is frozen from the start), the dataset and
its transform, the views. Where part of the training maps may be held out, all are in the table and
a split reads its own rows. They are made shard by shard, each written whole, so an interrupted
extraction goes on where it stopped; several ranks share the shards.
"""

import hashlib
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from omegaconf import DictConfig
from tqdm import tqdm

from datasets.io import hdf5
from datasets.io.files import atomic_write
from engine.cli import targets
from engine.features.table import SUMS, FeatureTable, array_of, names_of, opened, row_sums
from engine.runs import code, identity, records
from engine.runs.folder import locked
from engine.training import build
from engine.training.batches import Key, Keyed, loader
from engine.training.log import say

SHARD = 2048  # images
ABOUT = "about.json"


def tables(
    fabric: Fabric, cfg: DictConfig, model: Any, splits: dict[str, Any], backbone: Path | None
) -> dict[str, FeatureTable]:
    """The cached splits, extracted now where they are missing from the images of `splits`."""
    views = {"train": cfg.features.views, "val": 1, "test": 1}
    plan = {split: views[split] for split in splits}
    about, made_from = _about(cfg, backbone), _made_from(cfg)
    if backbone is None:
        about |= {"frozen": _digest(model)}
    folder = Path(cfg.paths.outputs) / "features" / identity.digest(about)[:12]
    with locked(folder, fabric.is_global_zero):
        fabric.barrier()
        if fabric.is_global_zero:
            forget_stale(folder, made_from)
            records.write(folder / ABOUT, {**about, "made_from": made_from})
        fabric.barrier()
        for split, views in plan.items():
            path = _path(folder, split, cfg)
            if path.is_file():
                shutil.rmtree(path.with_suffix(".parts"), ignore_errors=True)  # killed at the end
                continue
            source = splits[split]
            if split == "train":
                changes: dict[str, Any] = {"validation": None} if dense(source) else {}
                source = build.dataset(cfg, "train", augment=cfg.features.augment, **changes)
            extract(fabric, model, source, path, views, cfg)
        fabric.barrier()
    return {split: _table(_path(folder, split, cfg), split, splits[split]) for split in plan}


def forget_stale(folder: Path, made_from: dict[str, str]) -> None:
    """Remove tables of other images or code, with a line that says why; they are made again."""
    try:
        before = records.read(folder / ABOUT, "").get("made_from")
    except FileNotFoundError:
        before = made_from
    except ValueError:
        before = None
    changed = [part for part in made_from if (before or {}).get(part) != made_from[part]]
    if changed:
        say(f"{folder}: features made again, as {' and '.join(changed)} changed")
        for path in [*folder.glob("*.h5"), *folder.glob("*.parts")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


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
    """What the name of the tables' folder follows from."""
    data: Any = targets.plain(cfg.dataset)
    data.pop("validation", None)
    return {
        "checkpoint": None if backbone is None else identity.file_digest(backbone),
        "dataset": data,
        "features": targets.plain(cfg.features),
        "precision": str(cfg.trainer.precision),
        "holds": ["features", "targets", SUMS],
    }


def _made_from(cfg: DictConfig) -> dict[str, str]:
    """What may change under the same name, and makes tables stale."""
    data: Any = targets.plain(cfg.dataset)
    content = cfg.get("images") == "content"
    return {
        "files": identity.digest(identity.files_of({"dataset": data})),
        "images": identity.digest(identity.fingerprint(data, content)),
        "code": code.version([data["_target_"], cfg.model["_target_"]])[:16],
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
        arrays = {name: np.stack([row[name] for row in block]) for name in block[0]}
        finite = np.isfinite(arrays["features"]).reshape(len(block), -1).all(1)
        if not finite.all():
            raise ValueError(
                f"{path}: the features of images {np.flatnonzero(~finite)[:5] + shard[1]} are not "
                f"finite as {cfg.features.dtype}; the backbone has diverged, or needs float32."
            )
        arrays[SUMS] = row_sums(arrays)
        _write(_part(parts, *shard), arrays)
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
    compiled = torch.compile(model.features) if cfg.trainer.compile else model.features
    for batch in images_of:
        images = fabric.to_device(batch["input"]).to(memory_format=form)
        forward = compiled if len(images) == size else model.features  # one shape is compiled
        with fabric.autocast():
            features = forward(images)
        with np.errstate(over="ignore"):  # what overflows is named where it is written
            rows = {"features": features.float().cpu().numpy().astype(cfg.features.dtype)}
        rows |= {name: batch[name].numpy() for name in ("target", "mask") if name in batch}
        for i in range(len(features)):
            yield {name: array[i] for name, array in rows.items()}


def _write(path: Path, arrays: Mapping[str, NDArray]) -> None:
    layout = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    with atomic_write(path) as file:
        offsets = hdf5.lay_out(file, layout, {})
        for name, array in arrays.items():
            file.seek(offsets[name])
            file.write(np.ascontiguousarray(array).tobytes())


def _merge(parts: Path, shards: list[Key], path: Path, views: int, size: int) -> None:
    """All shards as one file, then the shards go."""
    with opened(_part(parts, *shards[0])) as first:
        arrays = {name: array_of(first, name) for name in [*names_of(first), SUMS]}
        layout = {k: ((views, size, *a.shape[1:]), a.dtype) for k, a in arrays.items()}
    with atomic_write(path) as file:
        offsets = hdf5.lay_out(file, layout, {})
        for view, start in shards:
            with opened(_part(parts, view, start)) as part:
                for name, (shape, dtype) in layout.items():
                    row = dtype.itemsize * math.prod(shape[2:])
                    file.seek(offsets[name] + row * (view * size + start))
                    file.write(np.ascontiguousarray(array_of(part, name)).tobytes())
    shutil.rmtree(parts)


def _part(parts: Path, view: int, start: int) -> Path:
    return parts / f"{view}-{start}.h5"
