"""Make the balanced test mask and the training histogram of NYUD2-DIR, from the labelled `.mat`
also the files themselves (configs/prepare_nyud2.yaml)."""

import functools
import io
from pathlib import Path

import numpy as np
from command import command
from omegaconf import DictConfig
from tqdm import tqdm

from datasets.files import whole, write_with_sum
from datasets.nyud2 import HISTOGRAM, MASK
from datasets.nyud2_files import histograms, measured_mask, unpack
from datasets.nyud2_frames import MatFrames, frames


def prepare(cfg: DictConfig) -> None:
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
    with whole(path) as file:
        file.write(data)


@command("prepare_nyud2")
def main(cfg: DictConfig) -> None:
    prepare(cfg)


if __name__ == "__main__":
    main()
