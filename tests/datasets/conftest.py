"""A folder of small random pictures with its CSV, and a way to write bad CSV files."""

from pathlib import Path

import cv2
import numpy as np
import pytest


def write_jpeg(path: Path, height: int, width: int, seed: int = 0, quality: int = 95) -> None:
    """A smooth random picture, as photographs are: pixels agree with neighbours, colours blend."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(height, width, 1)) + 0.3 * rng.normal(size=(height, width, 3))
    smooth = cv2.GaussianBlur(noise, (0, 0), max(height, width) / 25)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = np.clip(smooth / smooth.std() * 50 + 127, 0, 255).astype(np.uint8)
    path.write_bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes())


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    """Six images of 100 x 80 px, two in each split; the CSV is faces.csv."""
    rows = ["age,path,split"]
    for index in range(6):
        write_jpeg(tmp_path / f"crop/{index}.jpg", 100, 80, seed=index)
        rows.append(f"{10 * index},crop/{index}.jpg,{('train', 'val', 'test')[index % 3]}")
    (tmp_path / "faces.csv").write_text("\n".join(rows) + "\n")
    return tmp_path
