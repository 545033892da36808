"""Make the balanced test mask and the training histogram of NYUD2-DIR, from the labelled `.mat`
also the files themselves (configs/prepare_nyud2.yaml)."""

import sys
from pathlib import Path

# The scripts folder on the path would let scripts/synthetic.py hide the package synthetic/.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import cv2  # noqa: E402
import hydra  # noqa: E402
import numpy as np  # noqa: E402
from omegaconf import DictConfig  # noqa: E402
from tqdm import tqdm  # noqa: E402

from datasets import depth as maps  # noqa: E402
from datasets.nyud2 import HISTOGRAM, MASK, frames  # noqa: E402
from engine.files import whole  # noqa: E402

QUALITY = [cv2.IMWRITE_JPEG_QUALITY, 95]


def prepare(cfg: DictConfig) -> None:
    root = Path(cfg.root)
    if cfg.mat is not None:
        for side in ("train", "test"):
            unpack(cfg, root, side)
    for name, make in {HISTOGRAM: count, MASK: mask}.items():
        if (root / name).is_file() and not cfg.overwrite:
            print(f"{root / name} is there and stays as it is (overwrite=true makes it again).")
            continue
        array, told = make(root, cfg.seed)
        with whole(root / name) as file:
            np.save(file, array, allow_pickle=False)
        print(f"{root / name}: {told}")


def unpack(cfg: DictConfig, root: Path, side: str) -> None:
    """The frames of the `.mat` as JPEGs and PNGs, those that are not there yet, then the CSV."""
    source = frames(root, side, cfg.mat, cfg.splits)
    scale = 255 / 10 if side == "train" else 1000
    kind = np.uint8 if side == "train" else np.uint16
    lines = []
    for index in tqdm(range(len(source)), desc=f"unpacking {side}"):
        name = f"nyu2_{side}/{source.numbers[index]:04d}"  # pyright: ignore[reportAttributeAccessIssue]
        lines.append(f"data/{name}.jpg,data/{name}.png\n")
        if (root / f"{name}.png").is_file():  # written last
            continue
        image, depth = source[index]
        values = np.clip(np.round(depth * scale), 0, np.iinfo(kind).max).astype(kind)
        encoded = {
            ".jpg": cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), QUALITY)[1],
            ".png": cv2.imencode(".png", values)[1],
        }
        for ending, data in encoded.items():
            with whole(root / f"{name}{ending}") as file:
                file.write(data.tobytes())
    with whole(root / f"nyu2_{side}.csv") as file:
        file.write("".join(lines).encode())


def count(root: Path, seed: int) -> tuple[np.ndarray, str]:
    """(frames, 100) pixels of the training crops in each bin."""
    source = frames(root, "train")
    each = [histogram_of(source.depth(i)) for i in tqdm(range(len(source)), desc="counting")]
    counts = np.stack(each).astype(np.int32)
    share = counts[:, 50:].sum() / counts.sum()
    return counts, f"{len(counts):,} training frames, {share:.1%} of the pixels beyond 5 m."


def histogram_of(depth: np.ndarray) -> np.ndarray:
    return maps.histogram(crop(depth))


def crop(depth: np.ndarray) -> np.ndarray:
    where = maps.placement(depth.shape, maps.CROP)
    return maps.sample(depth, maps.CROP, where, nearest=True)


def mask(root: Path, seed: int) -> tuple[np.ndarray, str]:
    """uint8 (frames, 228, 304): as many test pixels of every bin as the rarest of them has."""
    source = frames(root, "test")
    every = np.empty((len(source), *maps.CROP), np.uint8)  # bins fit in a byte
    for index in tqdm(range(len(source)), desc="binning"):
        every[index] = maps.bins_of(crop(source.depth(index)))
    chosen = maps.balanced_mask(every, seed)
    used = np.bincount(every[chosen > 0], minlength=maps.BINS)
    told = f"{used.max():,} pixels of each of {(used > 0).sum()} bins in {len(source)} test frames."
    return chosen, told


@hydra.main(version_base="1.3", config_path="../configs", config_name="prepare_nyud2")
def main(cfg: DictConfig) -> None:
    prepare(cfg)


if __name__ == "__main__":
    main()
