"""From what is downloaded to what the datasets read; each function is a script of scripts/."""

import csv
import functools
import io
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from tqdm import tqdm

from datasets import ages as imdb_wiki
from datasets import sources
from datasets.io.files import atomic_write, write_with_sum
from datasets.io.nyud2_frames import MatFrames, frames
from datasets.nyud2 import HISTOGRAM, MASK
from datasets.nyud2_files import histograms, measured_mask, unpack
from datasets.split import balanced_split, identical_images, sides
from datasets.stsb import FILES, read_pairs, vectors_of, wordllama
from engine.benchmarks.age import describe

SOURCES = {"imdb_wiki": sources.imdb_wiki, "agedb": sources.agedb, "utkface": sources.utkface}


def ages(cfg: DictConfig) -> None:
    """The CSV of an age dataset, unless it is there, and its packed store if asked."""
    root, target = Path(cfg.root), Path(cfg.csv)
    if target.is_file() and not cfg.overwrite:
        print(f"{target} is there and stays as it is (overwrite=true makes it again).")
    else:
        make_csv(cfg, root, target)
    print(describe(imdb_wiki.read_csv(target)))
    if cfg.pack is not None:
        progress = functools.partial(tqdm, desc="packing")
        packed = imdb_wiki.pack(
            target, root, cfg.store, cfg.pack, progress, max_pixels=cfg.max_pixels
        )
        print(f"{packed.path}: {len(packed)} images of {cfg.pack} px.")


def make_csv(cfg: DictConfig, root: Path, target: Path) -> None:
    """Read the ages, look for identical images, split, write."""
    if cfg.source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}; got {cfg.source!r}.")
    limits = {"max_bytes": cfg.max_bytes} if cfg.source == "imdb_wiki" else {}
    ages, paths = SOURCES[cfg.source](root, **limits)
    if cfg.drop_missing:
        here = [index for index, path in enumerate(paths) if (root / path).is_file()]
        print(f"{len(paths) - len(here)} of {len(paths)} images are not on the disk: left out.")
        ages, paths = ages[here], [paths[index] for index in here]
    files = [root / path for path in paths]
    groups = identical_images(files, lambda files: tqdm(files, desc="looking for identical images"))
    split = balanced_split(ages, cfg.cap, cfg.seed, groups if cfg.identical_on_one_side else ())
    report_identical(target.with_name(f"{target.stem}_identical.csv"), groups, ages, paths, split)
    imdb_wiki.write_csv(target, ages.tolist(), paths, split.tolist())


def report_identical(
    file: Path, groups: list[list[int]], ages: np.ndarray, paths: list[str], split: np.ndarray
) -> None:
    """Say how many images exist more than once, and list them in a CSV beside the dataset's."""
    leaks = sum(len(found) > 1 for found in sides(groups, split))
    conflicts = sum(len({float(ages[index]) for index in group}) > 1 for group in groups)
    print(
        f"{sum(map(len, groups))} images are copies of one another, in {len(groups)} groups; "
        f"{leaks} groups are on two sides of the split, {conflicts} have more than one age."
    )
    if groups:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["group", "age", "path", "split"])
        for number, group in enumerate(groups):
            writer.writerows([number, ages[i], paths[i], split[i]] for i in group)
        with atomic_write(file) as out:
            out.write(text.getvalue().encode())
        print(f"They are listed in {file}.")


def depth(cfg: DictConfig) -> None:
    """The balanced test mask and the training histogram, before them the files of a `.mat`."""
    root = Path(cfg.root)
    if cfg.mat is not None:
        for side in ("train", "test"):
            source = frames(root, side, cfg.mat, cfg.splits)
            assert isinstance(source, MatFrames)
            unpack(source, root, side, write, functools.partial(tqdm, desc=f"unpacking {side}"))
    if wanted(root / HISTOGRAM, cfg.overwrite):
        counts = histograms(frames(root, "train"), functools.partial(tqdm, desc="counting"))
        save(root / HISTOGRAM, counts)
        share = counts[:, 50:].sum() / counts.sum()
        print(f"{len(counts):,} training frames, {share:.1%} of the pixels beyond 5 m.")
    if wanted(root / MASK, cfg.overwrite):
        mask, pixels, bins = measured_mask(
            frames(root, "test"), cfg.seed, functools.partial(tqdm, desc="balancing")
        )
        save(root / MASK, mask)
        print(f"{pixels:,} pixels of each of {bins} bins in {len(mask)} test frames.")


def wanted(path: Path, overwrite: bool) -> bool:
    if path.is_file() and not overwrite:
        print(f"{path} is there and stays as it is (overwrite=true makes it again).")
        return False
    return True


def save(path: Path, array: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_with_sum(path, buffer.getvalue())
    print(f"{path}: {array.dtype} {array.shape}")


def write(path: Path, data: bytes) -> None:
    with atomic_write(path) as file:
        file.write(data)


def similarity(cfg: DictConfig) -> Path:
    """stsb.npz, a vector of every sentence."""
    embed = wordllama() if cfg.vectors == "wordllama" else vectors_of(Path(cfg.vectors))
    arrays = {}
    for split, name in FILES.items():
        first, second, score = read_pairs(Path(cfg.source) / name)
        arrays |= {f"{split}_u": embed(first), f"{split}_v": embed(second)}
        arrays[f"{split}_score"] = score
        print(f"{split}: {len(score):,} pairs")
    path = Path(cfg.root) / "stsb.npz"
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)
    return path
