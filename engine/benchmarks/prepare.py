"""Prepare the data of the datasets: downloaded files, and mini datasets in their on-disk formats.
Each public function but `generate_missing` and `describe` is a script of scripts/."""

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from datasets import nyud2, sources
from datasets.ages import SPLITS, Row, pack, read_csv, write_csv
from datasets.io.files import atomic_write
from datasets.io.nyud2_frames import Frames, MatFrames, encode
from datasets.split import balanced_split, identical_images
from datasets.stsb import FILES, read_pairs, vectors_of, wordllama
from engine.runs.run import composed
from metrics.groups import SHOTS, age_shots
from models.smpl import read_pickle
from synthetic.mini.bodies import write_bodies
from synthetic.mini.faces import write_faces
from synthetic.mini.rooms import write_rooms


def ages(cfg: DictConfig) -> None:
    """Make the CSV of an age dataset unless it exists, and its packed store if asked for."""
    target = Path(cfg.output)
    if _wanted(target, cfg.overwrite):
        _make_csv(cfg, Path(cfg.root), target)
    print(describe(read_csv(target, cfg.root)))
    if cfg.pack is not None:
        bar = functools.partial(tqdm, desc="packing")
        limit = cfg.max_pixels
        packed = pack(target, cfg.root, cfg.store, cfg.pack, progress=bar, max_pixels=limit)
        print(f"{packed.path}: {len(packed)} images of {cfg.pack} px.")


def _make_csv(cfg: DictConfig, root: Path, target: Path) -> None:
    split = None
    if cfg.source == "csv":
        if cfg.csv is None or Path(cfg.csv).resolve() == target.resolve():
            raise ValueError(f"source=csv needs csv=<a CSV with age and path> other than {target}.")
        if not Path(cfg.csv).is_file():
            raise FileNotFoundError(f"{cfg.csv}: no such CSV; csv= takes the path of yours.")
        rows = read_csv(cfg.csv, root, needs_split=False)
        ages, paths = np.array([row.age for row in rows]), [row.path for row in rows]
        split = np.array([row.split for row in rows]) if rows and rows[0].split else None
    elif cfg.source == "imdb_wiki":
        ages, paths = sources.imdb_wiki(root, cfg.max_bytes)
    else:
        ages, paths = {"agedb": sources.agedb, "utkface": sources.utkface}[cfg.source](root)
    if cfg.drop_missing:
        here = [index for index, path in enumerate(paths) if (root / path).is_file()]
        print(f"{len(paths) - len(here)} of {len(paths)} images are missing and left out.")
        ages, paths = ages[here], [paths[index] for index in here]
        split = None if split is None else split[here]
    files = [root / path for path in paths]
    groups = identical_images(files, functools.partial(tqdm, desc="comparing images"))
    together = groups if cfg.identical_on_one_side else []
    if split is None:
        split = balanced_split(ages, cfg.cap, cfg.seed, together)
    for group in together:  # in a given split, too
        split[group] = "train"
    _report_identical(target.with_name(f"{target.stem}_identical.csv"), groups, ages, paths, split)
    write_csv(target, ages.tolist(), paths, split.tolist())


def _report_identical(
    file: Path, groups: list[list[int]], ages: np.ndarray, paths: list[str], split: np.ndarray
) -> None:
    """Print how many images are identical, and list them in a CSV."""
    lines = [(n, ages[i], paths[i], split[i]) for n, group in enumerate(groups) for i in group]
    listed = pd.DataFrame(lines, columns=["group", "age", "path", "split"])
    different = listed.groupby("group").nunique() > 1
    leaks, conflicts = different["split"].sum(), different["age"].sum()
    print(
        f"{len(listed)} images are identical to others, in {len(groups)} groups; "
        f"{leaks} groups are in more than one split, {conflicts} have more than one age."
    )
    if groups:
        _write(file, listed.to_csv(index=False).encode())
        print(f"They are listed in {file}.")


def describe(rows: Sequence[Row]) -> str:
    """Number of images in each split and of ages in each shot, of the rows of a CSV."""
    counts = Counter(row.split for row in rows)
    shots = age_shots([int(row.age) for row in rows if row.split == "train"])
    ages = Counter(int(shots[age]) for age in {int(row.age) for row in rows})
    images = ", ".join(f"{name} {counts[name]:,}" for name in SPLITS)
    return f"{images} images\n{', '.join(f'{n} {ages[i]}' for i, n in enumerate(SHOTS))} shot ages"


def depth(cfg: DictConfig) -> None:
    """Make the balanced test mask and the training histogram; with a `.mat`, first its frames."""
    root = Path(cfg.root)
    if cfg.mat is not None:
        splits = None if cfg.splits is None else Path(cfg.splits)
        for side in ("train", "test"):
            _unpack(MatFrames(Path(cfg.mat), splits, side), root, side, cfg.lossless)
    if _wanted(root / nyud2.HISTOGRAM, cfg.overwrite):
        progress = functools.partial(tqdm, desc="counting")
        counts = nyud2.histograms(Frames(root, "train"), progress)
        _save(root / nyud2.HISTOGRAM, counts)
        share = counts[:, 50:].sum() / counts.sum()
        print(f"{len(counts):,} training frames, {share:.1%} of the pixels beyond 5 m.")
    if _wanted(root / nyud2.MASK, cfg.overwrite):
        progress = functools.partial(tqdm, desc="balancing")
        mask, pixels, bins = nyud2.measured_mask(Frames(root, "test"), cfg.seed, progress)
        _save(root / nyud2.MASK, mask)
        print(f"{pixels:,} pixels of each of {bins} bins in {len(mask)} test frames.")


def _unpack(frames: MatFrames, root: Path, side: str, lossless: bool) -> None:
    """Write the frames of the `.mat` that do not exist yet, and then their CSV."""
    lines = []
    for index in tqdm(range(len(frames)), desc=f"unpacking {side}"):
        name = f"nyu2_{side}/{frames.numbers[index]:04d}"
        image, depth = (".png", ".tiff") if lossless else (".jpg", ".png")
        lines.append(f"data/{name}{image},data/{name}{depth}\n")
        if not (root / f"{name}{depth}").is_file():  # written after the image
            for ending, data in encode(*frames[index], side, lossless).items():
                _write(root / f"{name}{ending}", data)
    _write(root / f"nyu2_{side}.csv", "".join(lines).encode())


def similarity(cfg: DictConfig) -> None:
    """Make stsb.npz, which has a vector for every sentence."""
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
    print(path)


def _wanted(path: Path, overwrite: bool) -> bool:
    if path.is_file() and not overwrite:
        print(f"{path} exists and is kept (overwrite=true makes it again).")
        return False
    return True


def _save(path: Path, array: np.ndarray) -> None:
    with atomic_write(path) as file:
        np.save(file, array, allow_pickle=False)
    print(f"{path}: {array.dtype} {array.shape}")


def _write(path: Path, data: bytes) -> None:
    with atomic_write(path) as file:
        file.write(data)


def body_models(cfg: DictConfig) -> None:
    """Convert SMPL's official pickles to npz; nothing in them is executed."""
    if not any(cfg.files.values()):
        raise ValueError("Give SMPL's pickles: files.neutral=..., files.male=..., files.female=...")
    for gender, source in cfg.files.items():
        if source is not None:
            arrays = read_pickle(Path(source))
            arrays.pop("vertex_ids")
            target = Path(cfg.folder) / f"SMPL_{str(gender).upper()}.npz"
            with atomic_write(target) as file:
                np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
            print(f"{target}: {len(arrays['v_template'])} vertices, from {source}")


def generate(cfg: DictConfig) -> None:
    """Generate the datasets of `cfg.draw`, and print what was done."""
    for name in cfg.draw:
        own: Any = cfg if name == "faces" else cfg[name]
        progress = functools.partial(tqdm, desc=f"generating {name}", disable=None)
        if name == "faces":
            new = write_faces(own.folder, own.images, own.size, own.cap, cfg.seed, progress)
            about = "\n" + describe(read_csv(Path(own.folder) / "imdb_wiki.csv"))
        elif name == "rooms":
            new = write_rooms(own.folder, own.train, own.test, cfg.seed, progress)
            about = f"\ntrain {own.train:,}, test {own.test:,} frames"
        else:
            counts: Any = OmegaConf.to_container(own.counts)
            settings = counts, own.size, cfg.seed, own.poses, progress, own.harder
            new = write_bodies(own.folder, *settings)
            about = ""
        print(f"{own.folder}: {'generated' if new else 'already there, nothing to do'}.{about}")


def generate_missing(cfg: DictConfig) -> None:
    """Generate the mini dataset of a run, if its folder is missing and paths=mini.

    Other datasets of the benchmark (utkface) and other poses (paths.suffix=_cmu) are not generated.
    """
    name, part = cfg.benchmark.dataset, cfg.benchmark.get("mini")
    sizes, folder = cfg.paths.get("generate"), cfg.paths.get(name)
    own = name == cfg.benchmark.name and cfg.paths.suffix.startswith("_mini")
    if sizes is None or part is None or folder is None or not own or Path(folder).exists():
        return
    settings = composed("prepare_mini", [*sizes, f"draw=[{part}]"])
    (settings if part == "faces" else settings[part]).folder = folder
    with contextlib.redirect_stdout(sys.stderr):  # train.py prints the folder of its run
        generate(settings)
