"""Cache for the features of a frozen backbone: each image passes through it once.

A table is a folder outputs/features/<hash>/<split>/ with memory-mapped arrays:

    features.npy (V, N, ...)            V augmented views of N images
    target.npy, mask.npy (V, N, ...)    an augmentation may change the label too (a mirrored pose)
    about.json                          SHA-256 of each array; written last

The hash covers the settings: the backbone's weights, the dataset, the transform and the views.
Images and code are in made_from.json; when they change, the tables are recomputed. If part of the
training maps is held out, the table has all of them and a split reads its own rows.

Extraction writes shards, which several ranks share, and resumes from the shards that exist.
"""

import hashlib
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch.utils.data import Dataset
from tqdm import tqdm

from datasets.io.files import atomic_write
from engine.cli import targets
from engine.runs import identity, records
from engine.runs.folder import locked
from engine.training import build
from engine.training.batches import Key, Keyed, loader
from engine.training.log import print_message

SHARD = 2048  # images
ABOUT, MADE_FROM = "about.json", "made_from.json"
SHARDS = "shards"


class FeatureTable(Dataset):
    """Cached split. Given the keys (epoch, index) of a batch, returns the collated batch, which in
    epoch e is of view e mod V. If `together` is 2, it holds the next view of each image too.

    Arguments:
        folder: the finished table, which stays on disk and in the system's page cache.
        rows: the images of the table that make up the split; all of them by default.
    """

    def __init__(self, folder: Path, rows: Sequence[int] | None = None):
        files = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
        self.arrays = {name: np.asarray(array) for name, array in files.items()}
        self.views, size = self.arrays["features"].shape[:2]
        self.rows = np.arange(size) if rows is None else np.asarray(rows)
        self.together = 1

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, keys: Sequence[Key]) -> dict[str, Any]:
        index = np.array([index for _, index in keys])
        views = [(keys[0][0] + further) % self.views for further in range(self.together)]
        batch = {}
        for name, array in self.arrays.items():
            rows = [array[view][self.rows[index]] for view in views]
            batch[name] = torch.from_numpy(np.concatenate(rows))
        meta = {"index": torch.from_numpy(index).repeat(self.together)}
        return {"input": batch.pop("features").float(), **batch, "meta": meta}


def tables(
    fabric: Fabric, cfg: DictConfig, model: Any, splits: dict[str, Any], backbone: Path | None
) -> dict[str, FeatureTable]:
    """Return the cached splits; extract those that are missing from the images of `splits`."""
    root = Path(cfg.paths.outputs) / "features" / _key(cfg, model, backbone)
    # Datasets of maps, which count how often each label occurs, can hold out training maps.
    dense = any(hasattr(source, "label_counts") for source in splits.values())
    found, held_out = {}, cfg.dataset.get("validation")
    with locked(root, fabric.is_global_zero):
        fabric.barrier()
        if fabric.is_global_zero:
            _remove_unusable(root, cfg)
        fabric.barrier()
        for split, source in splits.items():
            training = split == "train"
            folder = root / (split if split != "val" or held_out is None else f"val_{held_out}")
            if not (folder / ABOUT).is_file():
                images, views = source, cfg.features.views if training else 1
                if training:
                    changes: dict[str, Any] = {"validation": None} if dense else {}
                    images = build.dataset(cfg, "train", augment=cfg.features.augment, **changes)
                extract(fabric, model, images, folder, views, cfg)
            found[split] = FeatureTable(folder, source.numbers if dense and training else None)
    return found


def _key(cfg: DictConfig, model: Any, backbone: Path | None) -> str:
    """Return the hash of the settings that the features depend on."""
    data: Any = targets.plain(cfg.dataset)
    data.pop("validation", None)
    about = {
        "checkpoint": None if backbone is None else identity.file_digest(backbone),
        "dataset": data,
        **({"protocol": targets.plain(cfg.protocol)} if cfg.get("protocol") else {}),
        "features": targets.plain(cfg.features),
        "precision": str(cfg.trainer.precision),
    }
    if backbone is None:  # frozen from the start: hash the weights and the shape of the features
        state, keys = model.state_dict(), sorted(model.constant_keys())
        weights = b"".join(state[key].cpu().numpy().tobytes() for key in keys)
        about["frozen"] = hashlib.sha256(weights).hexdigest(), repr(getattr(model, "shapes", None))
    return identity.digest(about)[:12]


def _remove_unusable(root: Path, cfg: DictConfig) -> None:
    """Remove tables and shards of other images or code, and damaged tables; log why."""
    data: Any = targets.plain(cfg.dataset)
    made_from = {
        **identity.data_parts({"dataset": data, "images": cfg.get("images")}),
        "code": identity.code(identity.DATA, [data["_target_"], cfg.model["_target_"]]),
    }
    try:
        before = records.read(root / MADE_FROM, "")
    except (FileNotFoundError, ValueError):
        before = {}
    changed = [name for name in made_from if before.get(name) != made_from[name]]
    for folder in [path for path in root.iterdir() if path.is_dir()]:
        if reason := f"{' and '.join(changed)} changed" if changed else problem(folder):
            print_message(f"{folder}: features recomputed, as {reason}")
            shutil.rmtree(folder)
    if changed:
        records.write(root / MADE_FROM, made_from)


def problem(folder: Path) -> str | None:
    """Return why a finished table cannot be used, or None. Files are hashed once per process."""
    try:
        digests = records.read(folder / ABOUT, "")["sha256"]
    except FileNotFoundError:  # not finished
        return None
    except (ValueError, KeyError):
        return f"{ABOUT} is damaged"
    for name, digest in digests.items():
        if identity.file_digest(folder / f"{name}.npy", large=None) != digest:
            return f"{name}.npy is missing or damaged"
    return None


def extract(
    fabric: Fabric, model: Any, dataset: Any, folder: Path, views: int, cfg: DictConfig
) -> None:
    """Write the table of a dataset with N images: (views, N, ...) for each array."""
    size, n = cfg.features.get("shard", SHARD), len(dataset)
    shards = {
        folder / SHARDS / f"{view}-{start}.npz": [(view, i) for i in range(n)[start : start + size]]
        for view in range(views)
        for start in range(0, n, size)
    }
    mine = list(shards)[fabric.global_rank :: fabric.world_size]
    missing = [path for path in mine if not path.is_file()]
    model = fabric.to_device(model).eval()
    compiled = torch.compile(model.features) if cfg.trainer.compile else model.features
    show = fabric.is_global_zero and cfg.log.progress
    for path in tqdm(missing, f"features of {folder.name}", disable=None if show else True):
        arrays = _shard(fabric, model, compiled, dataset, shards[path], cfg)
        finite = np.isfinite(arrays["features"]).reshape(len(shards[path]), -1).all(1)
        if not finite.all():
            bad = np.array(shards[path])[~finite, 1].tolist()
            raise ValueError(
                f"{folder}: the features of images {bad[:5]} are not finite as "
                f"{cfg.features.dtype}; the backbone has diverged, or needs float32."
            )
        with atomic_write(path) as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    fabric.barrier()
    if fabric.is_global_zero:
        _join(folder, list(shards), (views, n))
    fabric.barrier()


@torch.no_grad()
def _shard(
    fabric: Fabric, model: Any, compiled: Any, dataset: Any, keys: list[Key], cfg: DictConfig
) -> dict[str, NDArray]:
    """Return the features, targets and masks of some keys."""
    size, blocks = cfg.features.batch_size, defaultdict(list)
    batches = [keys[start : start + size] for start in range(0, len(keys), size)]
    form = torch.channels_last if cfg.trainer.channels_last else torch.contiguous_format
    for batch in loader(Keyed(dataset, cfg.features.seed), batches, cfg.trainer.workers):
        images = fabric.to_device(batch["input"]).to(memory_format=form)
        forward = compiled if len(images) == size else model.features  # compile one shape
        with fabric.autocast():
            features = forward(images).float().cpu().numpy()
        with np.errstate(over="ignore"):  # `extract` reports what overflows
            blocks["features"].append(features.astype(cfg.features.dtype))
        for name in {"target", "mask"} & batch.keys():
            blocks[name].append(batch[name].numpy())
    return {name: np.concatenate(block) for name, block in blocks.items()}


def _join(folder: Path, shards: list[Path], shape: tuple[int, int]) -> None:
    """Join the shards to one .npy file for each array, write about.json, remove the shards."""
    with np.load(shards[0]) as first:
        kinds = {name: (array.shape[1:], array.dtype) for name, array in first.items()}
    digests = {}
    for name, (tail, dtype) in kinds.items():
        path = folder / f"{name}.npy"
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        with atomic_write(path) as file:
            np.lib.format.write_array_header_1_0(file, header | {"shape": (*shape, *tail)})
            for shard in shards:
                with np.load(shard) as arrays:
                    file.write(np.ascontiguousarray(arrays[name]).data)
        digests[name] = identity.file_digest(path, large=None)
    shutil.rmtree(folder / SHARDS)
    records.write(folder / ABOUT, {"sha256": digests})
