"""A frozen backbone is a function of the image, so its features are computed once and stored.

    features (V, N, ...)        of V augmented views of N images
    target, mask (V, N, ...)    an augmentation may change the label as well (a mirrored pose)
    sums (V, N)                 CRC-32 of each row, compared whenever it is read

Epoch e of a head's training then reads view e mod V of its batch instead of running the backbone.
The tables are HDF5 files in a folder whose name is a hash of what they depend on: the backbone's
checkpoint (or its weights, where it is frozen from the start), the dataset and its transform, the
views. Where part of the training maps may be held out, all are in the table and a split reads its
own rows. They are made shard by shard, each written whole, so an interrupted extraction goes on
where it stopped; several ranks share the shards.
"""

import hashlib
import math
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch.utils.data import Dataset
from tqdm import tqdm

from datasets import hdf5
from datasets.files import whole
from engine import build, code, identity, records, targets
from engine.batches import Key, Keyed, loader
from engine.log import say
from engine.runs import locked

SHARD = 2048  # images
ABOUT, SUMS = "about.json", "sums"


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
        with opened(path) as file:
            self.views, found = _array(file, "features").shape[:2]
            self.sums = np.asarray(file[SUMS])
        self.size = size
        if size != (found if rows is None else len(rows)):
            raise ValueError(
                f"{path}: holds features of {found} images, the split has {size}. {_advice(path)}"
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
            part = slice(None) if self.rows is None else list(self.rows)
            self.tables = self._checked(view, part)
            self.view = view

    def _read(self, view: int, index: list[int]) -> dict[str, torch.Tensor]:
        """Rows straight from the file; evaluation asks for them in rising order, as HDF5 must."""
        return self._checked(view, index)

    def _checked(self, view: int, rows: Any) -> dict[str, torch.Tensor]:
        """Rows of all tables, each row compared with its checksum."""
        with opened(self.path) as file:
            found = {k: np.asarray(_array(file, k)[view, rows]) for k in _names(file)}
        wrong = row_sums(found) != self.sums[view, rows]
        if wrong.any():
            raise ValueError(
                f"{self.path}: {int(wrong.sum())} of {len(wrong)} rows are damaged. "
                f"{_advice(self.path)}"
            )
        return {name: torch.from_numpy(array) for name, array in found.items()}


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


def opened(path: Path) -> Any:
    """A table, open to be read; one that is damaged is named."""
    try:
        file = h5py.File(path)
        if SUMS in file and "features" in file:
            return file
        file.close()
        raise ValueError(f"{path}: expected features with checksums. {_advice(path)}")
    except OSError as error:
        raise ValueError(f"{path}: cut off or damaged ({error}). {_advice(path)}") from error


def _advice(path: Path) -> str:
    return f"Remove {path} and start the same command again: it is made again."


def row_sums(arrays: Mapping[str, NDArray]) -> NDArray[np.uint32]:
    """(N,) CRC-32 of each row over all arrays (N, ...), by name."""
    rows = [np.ascontiguousarray(arrays[name]) for name in sorted(arrays)]
    flat = [array.reshape(len(array), -1).view(np.uint8) for array in rows]
    sums = np.zeros(len(flat[0]), np.uint32)
    for i in range(len(sums)):
        for array in flat:
            sums[i] = zlib.crc32(array[i], int(sums[i]))
    return sums


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
    for batch in images_of:
        images = fabric.to_device(batch["input"]).to(memory_format=form)
        with fabric.autocast():
            features = model.features(images)
        with np.errstate(over="ignore"):  # what overflows is named where it is written
            rows = {"features": features.float().cpu().numpy().astype(cfg.features.dtype)}
        rows |= {name: batch[name].numpy() for name in ("target", "mask") if name in batch}
        for i in range(len(features)):
            yield {name: array[i] for name, array in rows.items()}


def _write(path: Path, arrays: Mapping[str, NDArray]) -> None:
    layout = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    with whole(path) as file:
        offsets = hdf5.lay_out(file, layout, {})
        for name, array in arrays.items():
            file.seek(offsets[name])
            file.write(np.ascontiguousarray(array).tobytes())


def _merge(parts: Path, shards: list[Key], path: Path, views: int, size: int) -> None:
    """All shards as one file, then the shards go."""
    with opened(_part(parts, *shards[0])) as first:
        arrays = {name: _array(first, name) for name in [*_names(first), SUMS]}
        layout = {k: ((views, size, *a.shape[1:]), a.dtype) for k, a in arrays.items()}
    with whole(path) as file:
        offsets = hdf5.lay_out(file, layout, {})
        for view, start in shards:
            with opened(_part(parts, view, start)) as part:
                for name, (shape, dtype) in layout.items():
                    row = dtype.itemsize * math.prod(shape[2:])
                    file.seek(offsets[name] + row * (view * size + start))
                    file.write(np.ascontiguousarray(_array(part, name)).tobytes())
    shutil.rmtree(parts)


def _names(file: h5py.File) -> list[str]:
    return [str(name) for name in file if name != SUMS]


def _array(file: h5py.File, name: str) -> Any:
    return file[name]


def _part(parts: Path, view: int, start: int) -> Path:
    return parts / f"{view}-{start}.h5"
