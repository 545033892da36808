"""A view changes picture, keypoints, joints and pose together, as in SPIN and MMHuman3D."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from datasets import crops
from datasets.io.people import read_people
from models.smpl import SMPL

RELEASED_CROPS = {
    "plain": ([96, 253, 155, 56, 214, 115, 17, 174], 126.654),
    "mirrored": ([76, 174, 17, 115, 214, 56, 155, 253], 126.554),
}
MOVED = crops.View(flip=True, rotation=35.0, scale=1.1)


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
