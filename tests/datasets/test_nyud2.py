"""The items of NYUD2-DIR, its held-out scenes, its two sources, and every way files are wrong."""

import re
import shutil
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
import torch
from scipy.io import savemat

from datasets import nyud2
from datasets.depth import NEAREST, bins_of, released_depth, to_image
from datasets.io.nyud2_frames import Frames
from datasets.nyud2 import DepthDataset, measured_mask

SMALL = (28, 38)


@pytest.fixture
def folder(rooms: Path, tmp_path: Path) -> Path:
    """A copy of the rooms that a test may damage."""
    return Path(shutil.copytree(rooms / "nyud2", tmp_path / "nyud2"))


def first(folder: Path, ending: str, side: str = "train") -> Path:
    return sorted((folder / f"nyu2_{side}").rglob(f"*{ending}"))[0]


def test_items(rooms: Path):
    train = DepthDataset(rooms / "nyud2", "train", SMALL)
    item = train[0]
    assert item["input"].shape == (3, 228, 304)
    assert item["target"].shape == (1, *SMALL)
    assert set(item) == {"input", "target", "meta"}
    test = DepthDataset(rooms / "nyud2", "test", SMALL)
    item = test[1]
    assert item["target"].shape == item["mask"].shape == (1, 228, 304)
    assert item["mask"].dtype == torch.bool
    assert item["target"][item["mask"]].min() >= NEAREST


def test_depth_is_in_metres_at_both_depths_of_bits(rooms: Path):
    for split, scale in (("train", 10 / 255), ("test", 1 / 1000)):
        dataset = DepthDataset(rooms / "nyud2", split, (228, 304), augment=False)
        raw = cv2.imread(str(dataset.frames.files[0][1]), cv2.IMREAD_UNCHANGED)  # pyright: ignore
        target = dataset[0]["target"][0].numpy()
        np.testing.assert_allclose(target, raw[6:234, 8:312] * scale, rtol=1e-6)


def test_the_histogram_is_that_of_the_crops(rooms: Path):
    train = DepthDataset(rooms / "nyud2", "train", (228, 304), augment=False)
    targets = np.concatenate([train[i]["target"].numpy().ravel() for i in range(len(train))])
    slow = np.bincount(bins_of(targets), minlength=100)
    slow[:7] = 0
    np.testing.assert_array_equal(train.label_counts, slow)


def write_large(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """A frame of NYU's own size as training and as test frame: its image and its millimetres."""
    rng = np.random.default_rng(0)
    image = cv2.resize(rng.integers(0, 255, (48, 64, 3), np.uint8), (640, 480))
    depth = rng.integers(700, 9999, (480, 640), np.uint16)
    for side, stored in (("train", (depth // 40).astype(np.uint8)), ("test", depth)):
        (folder / f"nyu2_{side}").mkdir()
        cv2.imwrite(str(folder / f"nyu2_{side}/0.jpg"), image, [cv2.IMWRITE_JPEG_QUALITY, 100])
        cv2.imwrite(str(folder / f"nyu2_{side}/0.png"), stored)
        (folder / f"nyu2_{side}.csv").write_text(f"data/nyu2_{side}/0.jpg,data/nyu2_{side}/0.png")
    np.save(folder / nyud2.HISTOGRAM, np.ones((1, 100), np.int32))
    np.save(folder / nyud2.MASK, np.ones((1, 228, 304), np.uint8))
    return image[..., ::-1], depth


def test_a_frame_of_640_x_480_is_evaluated_at_the_released_pixels(tmp_path: Path):
    image, depth = write_large(tmp_path)
    item = DepthDataset(tmp_path, "test", SMALL)[0]
    expected = depth[13:469:2, 17:625:2] / np.float32(1000)
    np.testing.assert_allclose(item["target"][0], expected, rtol=1e-6)
    columns = np.pad(image, ((1, 1), (1, 1), (0, 0)), "edge").astype(float)
    rows = sum(w * columns[i : i + 480 : 2] for i, w in enumerate([1, 3, 3, 1])) / 8
    half = sum(w * rows[:, i : i + 640 : 2] for i, w in enumerate([1, 3, 3, 1])) / 8  # a triangle
    seen = to_image(item["input"]).astype(float)
    assert np.abs(seen - half[6:234, 8:312]).mean() < 2  # JPEG at its best quality
    bins = bins_of(depth[13:469:2, 17:625:2] / 1000)
    mask, each, number = measured_mask(Frames(tmp_path, "test"), seed=0)
    assert (number, each) == (93, np.bincount(bins.ravel())[7:].min())
    assert set(np.bincount(bins[mask[0] > 0])[7:]) == {each}


def test_training_frames_are_resampled_as_asked(tmp_path: Path):
    write_large(tmp_path)
    one, steps = (
        DepthDataset(tmp_path, "train", (114, 152), resampling=how) for how in nyud2.RESAMPLING
    )
    image, depth, _ = steps.frames[0]
    assert image.shape == (480, 640, 3)
    assert one.frames[0].image.shape == (240, 320, 3)  # decoded at half the size
    torch.manual_seed(0)
    item = steps[0]
    torch.manual_seed(0)
    turn, coin = torch.rand(2).tolist()
    expected = released_depth(depth, (114, 152), 5 * (2 * turn - 1), coin < 0.5) * (10 / 255)
    np.testing.assert_allclose(item["target"][0], expected, rtol=1e-6)
    assert one[0]["target"].shape == item["target"].shape
    with pytest.raises(ValueError, match="Unknown resampling 'twice'; choose from once, released"):
        DepthDataset(tmp_path, "train", SMALL, resampling="twice")


def test_augmentation_repeats_with_the_seed(rooms: Path):
    train = DepthDataset(rooms / "nyud2", "train", SMALL)
    torch.manual_seed(0)
    one, other = train[0], train[0]
    torch.manual_seed(0)
    again = train[0]
    assert all(torch.equal(one[name], again[name]) for name in ("input", "target"))
    assert not torch.equal(one["input"], other["input"])


def test_scenes_are_held_out_whole(monkeypatch: pytest.MonkeyPatch, rooms: Path):
    monkeypatch.setattr(nyud2, "BLOCK", 2)
    parts = [DepthDataset(rooms / "nyud2", s, SMALL, validation=0.25) for s in ("train", "val")]
    numbers = [part.numbers for part in parts]
    assert sorted([*numbers[0], *numbers[1]]) == list(range(8))
    assert numbers[1] == [6, 7]
    whole = DepthDataset(rooms / "nyud2", "train", SMALL).label_counts
    assert whole is not None
    assert parts[0].label_counts.sum() < whole.sum()  # pyright: ignore
    assert parts[1][0]["mask"].sum() == (parts[1][0]["target"] >= NEAREST).sum()
    assert len(DepthDataset(rooms / "nyud2", "val", SMALL)) == 0
    assert len(DepthDataset(rooms / "nyud2", "val", SMALL, validation="test")) == 3
    with pytest.raises(ValueError, match="holds out 0 of 8 frames"):
        DepthDataset(rooms / "nyud2", "val", SMALL, validation=0.01)


def write_mat(folder: Path, frames: int = 3) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    with h5py.File(folder / "labeled.mat", "w") as file:
        file["images"] = rng.integers(0, 255, (frames, 3, 640, 480), np.uint8)
        file["depths"] = rng.uniform(0.8, 9.9, (frames, 640, 480)).astype(np.float32)
    savemat(folder / "splits.mat", {"trainNdxs": [[1], [3]], "testNdxs": [[2]]})
    return folder / "labeled.mat", folder / "splits.mat"


DAMAGE: dict[str, tuple[str, Any, str]] = {
    "16 bits": (".png", np.full((240, 320), 3000, np.uint16), "a grey PNG of uint8.*uint16"),
    "another size": (".png", np.full((120, 160), 90, np.uint8), r"\(240, 320\), got \(120, 160\)"),
    "zeros": (".png", np.zeros((240, 320), np.uint8), "expected a depth map, got .*zeros only"),
    "not an image": (".jpg", b"no image", "expected a complete image"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_frame_is_named(what: str, folder: Path):
    ending, content, message = DAMAGE[what]
    path = first(folder, ending)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        cv2.imwrite(str(path), content)
    with pytest.raises(ValueError, match=rf"{path.name}: .*{message}"):
        DepthDataset(folder, "train", SMALL)[0]


@pytest.mark.parametrize("text", ["data/a.jpg\n", "data/../a.jpg,data/a.png\n", "", "a/\0,a/b\n"])
def test_damaged_csv(folder: Path, text: str):
    (folder / "nyu2_train.csv").write_text(text)
    with pytest.raises(ValueError, match=r"nyu2_train\.csv.*expected"):
        DepthDataset(folder, "train", SMALL)


FILES = {"test": (nyud2.MASK, (3, 228, 304)), "train": (nyud2.HISTOGRAM, (8, 100))}


@pytest.mark.parametrize("side", FILES)
def test_missing_files_and_files_of_the_wrong_shape(folder: Path, side: str):
    name, shape = FILES[side]
    np.save(folder / name, np.ones((2, *shape[1:]), np.uint8))
    with pytest.raises(ValueError, match=rf"{name}: .*{re.escape(str(shape))}, got \(2, "):
        DepthDataset(folder, side, SMALL)
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name}: no such file.*prepare_nyud2"):
        DepthDataset(folder, side, SMALL)
    path = first(folder, ".png", side)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"_{side}\.csv, line 1: no such .*{path.name}"):
        DepthDataset(folder, side, SMALL)
