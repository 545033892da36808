"""SPIN's files are read and checked, and a view changes picture and labels together."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from datasets import crops
from datasets.ihmr import BodyDataset, held_out, split_target
from datasets.io.people import read_people
from models.smpl import SMPL

RELEASED_CROPS = {
    "plain": ([96, 253, 155, 56, 214, 115, 17, 174], 126.654),
    "mirrored": ([76, 174, 17, 115, 214, 56, 155, 253], 126.554),
}
MOVED = crops.View(flip=True, rotation=35.0, scale=1.1)


@pytest.fixture
def sources(bodies: Path) -> dict:
    folder = bodies / "ihmr"
    coco = {"npz": folder / "coco_2014_train.npz", "fits": folder / "static_fits/coco_fits.npy"}
    return {
        "train": {
            "h36m": {"probability": 0.7, "npz": folder / "h36m_train.npz", "images": folder},
            "coco": {"probability": 0.3, **coco, "images": folder},
        },
        "test": {"npz": folder / "3dpw_test.npz", "images": folder},
        **{"holdout": 0.2, "turned": 0.4, "one_warp": False},
        **{"size": 32, "mean": [0.5] * 3, "std": [0.5] * 3},
    }


def test_items(sources: dict):
    train = BodyDataset("train", **sources)
    item = train[3]
    assert item["input"].shape == (3, 32, 32)
    assert item["target"].shape == (473,)
    assert train.labels.shape == (len(train), 216)
    assert len(train) == max(train.sizes)
    val, test = BodyDataset("val", **sources), BodyDataset("test", **sources)
    assert len(test) == 16
    assert len(val) == val.sizes.sum()
    names = [{str(n) for people in d.sets for n in people.imgname} for d in (train, val, test)]
    assert not names[0] & names[1]
    assert not names[1] & names[2]
    genders = split_target(np.stack([test[i]["target"].numpy() for i in range(16)]))["gender"]
    assert set(genders[:, 0]) == {0, 1}


def test_sets_are_drawn_with_their_probabilities(sources: dict):
    train = BodyDataset("train", **sources)
    torch.manual_seed(0)
    draws = [train._find(0, float(torch.rand(())))[0].npz.stem for _ in range(2000)]
    # 0.03: three standard deviations of a share of 2,000 draws
    assert abs(np.mean([name == "h36m_train" for name in draws]) - 0.7) < 0.03
    alone = BodyDataset("train", **sources, only=["coco"])
    assert [people.npz.stem for people in alone.sets] == ["coco_2014_train"]
    with pytest.raises(ValueError, match="only must name some of"):
        BodyDataset("train", **sources, only=["lsp"])


def test_a_view_moves_keypoints_and_pixels_alike():
    """A white dot on black: its keypoint follows it."""
    image = np.zeros((90, 120, 3), np.uint8)
    cv2.circle(image, (70, 30), 2, (255, 255, 255), -1)
    center, scale = np.array([60.0, 45.0], np.float32), 0.4
    points = np.zeros((49, 3), np.float32)
    points[:] = 70, 30, 1
    moved = crops.crop_keypoints(points, center, scale, MOVED)[0]
    # a pixel by the mirror (SPIN's: keypoints about S, pixels about S - 1), half for the raster
    for one_warp, tolerance in ((False, 1.5), (True, 0.5)):
        seen = crops.crop(image, center, scale, MOVED, 64, one_warp)
        y, x = np.nonzero(seen[..., 0] > 100)
        np.testing.assert_allclose((moved[:2] + 1) * 32, [x.mean(), y.mean()], atol=tolerance)


def test_one_warp_is_mmhuman3ds_crop():
    """Numbers of its MeshAffine, mirrored after its RandomHorizontalFlip, on the same picture: the
    middle row of the first colour at every eighth pixel, and the mean of all.
    """
    y, x = np.mgrid[:200, :300]
    image = np.stack([x * 7 % 256, y * 5 % 256, (x * y) % 256], -1).astype(np.uint8)
    center, scale = np.array([140.25, 90.5]), 0.9
    for view, (row, mean) in RELEASED_CROPS.items():
        made = crops.crop(image, center, scale, crops.View(flip=view == "mirrored"), 64, True)
        # 1 grey level: OpenCV interpolates with 5 bits, between points that differ in the 7th digit
        np.testing.assert_allclose(made[32, ::8, 0].astype(int), row, atol=1)
        assert made.mean() == pytest.approx(mean, abs=0.05)


def test_a_view_moves_pose_and_joints_alike(bodies: Path):
    """The joints of the turned and mirrored pose are the turned and mirrored joints.

    The body is not quite symmetric, so the mirror is checked to centimetres, the turn exactly.
    """
    people = read_people(bodies / "ihmr" / "h36m_train.npz", bodies)
    body = SMPL(bodies / "ihmr", joints_only=True)
    for view, tolerance in ((MOVED._replace(flip=False), 1e-5), (MOVED, 0.03)):
        for row in range(4):
            turned = crops.turn_pose(people.rotations[row], view)
            both = torch.from_numpy(np.stack([turned, people.rotations[row]]))
            joints = body(both, torch.zeros(2, 10))[1][:, 25:].numpy()
            joints -= joints[:, 14:15]
            ones = np.ones((24, 1), np.float32)
            expected = crops.turn_joints(np.concatenate([joints[1], ones], 1), view)
            np.testing.assert_allclose(joints[0], expected[:, :3], atol=tolerance)


@pytest.mark.parametrize("flip", [crops.FLIP_POSE, crops.FLIP_24, crops.FLIP_49])
def test_mirrored_twice_each_joint_is_itself(flip: list[int]):
    assert [flip[joint] for joint in flip] == list(range(len(flip)))


def test_the_augmentation_is_spins():
    torch.manual_seed(0)
    views = [crops.random_view(0.4) for _ in range(3000)]
    # 0.03: three standard deviations of a share of 3,000
    assert abs(np.mean([v.flip for v in views]) - 0.5) < 0.03
    assert abs(np.mean([v.rotation != 0 for v in views]) - 0.4) < 0.03
    assert all(abs(v.rotation) <= 60 and 0.75 <= v.scale <= 1.25 for v in views)
    assert all(0.6 <= gain <= 1.4 for v in views for gain in v.gain)


def test_sequences_are_held_out_whole():
    names = np.array(
        [f"S1/walk_{take}.{frame:04d}.jpg" for take in range(40) for frame in range(5)]
    )
    chosen = held_out(names, 0.3).reshape(40, 5)
    assert (chosen.all(1) | ~chosen.any(1)).all()
    assert 3 < chosen.all(1).sum() < 25
    photographs = np.array([f"COCO_train2014_{number:012d}.jpg" for number in range(400)])
    assert 60 < held_out(photographs, 0.3).sum() < 180


def rewrite(source: Path, path: Path, **changes) -> Path:
    np.savez(path, **{**np.load(source), **changes})
    return path


BAD: dict[str, dict] = {
    r"gender must be m or f.*'x'": {"gender": np.full(16, "x")},
    "pose holds NaN": {"pose": np.full((16, 72), np.nan)},
    r"S is float64 \(16, 17, 4\), expected": {"S": np.zeros((16, 17, 4))},
    "expected people with boxes of positive scale": {"scale": np.zeros(16)},
    r"expected images below the folder, got imgname '\.\./a'": {"imgname": np.full(16, "../a")},
    r"expected images below the folder, got imgname '/a'": {"imgname": np.full(16, "/a")},
    "expected imgname .* of strings": {"imgname": np.zeros(16)},
    r"missing \['center', 'scale'\]. This is MMHuman3D's HumanData": {"center": None},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_files(message: str, bodies: Path, tmp_path: Path):
    path = rewrite(bodies / "ihmr" / "3dpw_test.npz", tmp_path / "bad.npz", **BAD[message])
    if "HumanData" in message:
        np.savez(path, imgname=np.array(["a"]), image_path=np.array(["a"]))
    with pytest.raises(ValueError, match=rf"bad\.npz: .*{message}"):
        read_people(path, tmp_path)


def test_missing_files_and_fits_of_others(bodies: Path, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"a\.npz or b\.npz: no such file.*dataset.only"):
        read_people(["a.npz", "b.npz"], tmp_path)
    np.save(tmp_path / "fits.npy", np.zeros((15, 82)))
    with pytest.raises(ValueError, match=r"fits\.npy.*\(15, 82\), expected.*\(16, 82\)"):
        read_people(bodies / "ihmr/3dpw_test.npz", tmp_path, tmp_path / "fits.npy")


def test_a_missing_image_is_named(sources: dict, tmp_path: Path):
    sources["test"] = {**sources["test"], "images": tmp_path}
    test = BodyDataset("test", **sources)
    with pytest.raises(FileNotFoundError, match=r"00005\.jpg: no such image, named by row 5 of"):
        test[5]


def test_equal_genders_are_strange(sources: dict, bodies: Path, tmp_path: Path):
    alike = rewrite(bodies / "ihmr/3dpw_test.npz", tmp_path / "t.npz", gender=np.full(16, "m"))
    sources["test"] = {**sources["test"], "npz": alike}
    with pytest.warns(UserWarning, match=r"t\.npz: all 16 people have the same gender"):
        BodyDataset("test", **sources)
