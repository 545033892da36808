"""Images a second of the age input pipeline beside a plain PIL dataset, on one core."""

import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import Resize, ToTensor
from tqdm import tqdm

from datasets.ages import AgeDataset, pack, write_csv
from synthetic.mini.faces import face


class PlainDataset(Dataset):
    """(3, S, S) float32 in [0, 1]: open with PIL, resize, ToTensor, as most code does."""

    def __init__(self, files: list[Path], size: int):
        self.files = files
        self.resize, self.to_tensor = Resize((size, size)), ToTensor()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.files[index]) as image:
            return self.to_tensor(self.resize(image.convert("RGB")))


def measure(images: int, side: int, size: int, rounds: int) -> dict[str, float]:
    """Images a second on one core: keys plain, files and store, the last two also _augmented."""
    threads, cv_threads = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _measure(Path(folder), images, side, size, rounds)
    finally:
        torch.set_num_threads(threads)
        cv2.setNumThreads(cv_threads)


def _measure(root: Path, images: int, side: int, size: int, rounds: int) -> dict[str, float]:
    paths = [f"{index}.jpg" for index in range(images)]
    for index, path in enumerate(tqdm(paths, desc="drawing")):
        bgr = cv2.cvtColor(face(index % 90, side, (0, index)), cv2.COLOR_RGB2BGR)
        cv2.imwrite(str(root / path), bgr, [cv2.IMWRITE_JPEG_QUALITY, 92])
    write_csv(root / "faces.csv", [30] * images, paths, ["train"] * images)
    pack(root / "faces.csv", root, root / "faces.h5", size, lambda x: tqdm(x, desc="packing"))
    loaders: dict[str, Dataset] = {"plain": PlainDataset([root / path for path in paths], size)}
    for name, store in (("files", None), ("store", root / "faces.h5")):
        for suffix, augment in (("", False), ("_augmented", True)):
            loaders[name + suffix] = AgeDataset(
                root / "faces.csv", root, "train", size, augment, store
            )
    seconds: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in tqdm(range(rounds), desc="measuring"):
        for name, loader in loaders.items():
            start = time.perf_counter()
            for index in range(images):
                loader[index]
            seconds[name].append(time.perf_counter() - start)
    return {name: images / float(np.median(taken)) for name, taken in seconds.items()}
