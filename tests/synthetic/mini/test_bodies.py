"""The free body is a person in SMPL's format, and its dataset is long-tailed and repeatable."""

import itertools
from pathlib import Path

import cv2
import numpy as np
import pytest
import roma
import torch

from models.smpl import check_body
from synthetic.mini.bodies import degraded, mean_rotation, write_bodies
from synthetic.mini.body import body, garments, nearest, render_person, smpl_arrays
from synthetic.mini.poses import read_poses, sample_poses


def test_the_body_is_a_person():
    """Facts about people in a T-pose, in SMPL's order of joints; left is +x, y is up."""
    arrays = check_body(smpl_arrays("neutral"), "body")
    vertices, joints = arrays["v_template"], arrays["J_regressor"] @ arrays["v_template"]
    height = np.ptp(vertices[:, 1])
    assert 1.5 < height < 1.9
    assert 0.85 < np.ptp(vertices[:, 0]) / height < 1.1  # as wide as tall
    for left, right in ((1, 2), (4, 5), (7, 8), (16, 17), (18, 19), (20, 21)):
        assert joints[left, 0] > 0.05
        np.testing.assert_allclose(joints[left], joints[right] * [-1, 1, 1], atol=0.03)
    assert joints[15, 1] > joints[12, 1] > joints[9, 1] > joints[0, 1] > joints[4, 1] > joints[7, 1]
    nose = vertices[arrays["vertex_ids"][0]]
    assert nose[2] > joints[15, 2] + 0.05  # it faces +z
    for name in ("weights", "J_regressor"):
        np.testing.assert_allclose(arrays[name].sum(1), 1, rtol=1e-5)
    men, women = (smpl_arrays(gender)["v_template"] for gender in ("male", "female"))
    assert np.ptp(men[:, 1]) > np.ptp(women[:, 1])


def test_the_nearest_triangle_is_seen():
    near = np.array([[2, 2, 1], [12, 2, 1], [2, 12, 1]], float)
    far = near + np.array([0, 0, 5])
    number, pixel = nearest(np.stack([far, near]), 16)
    assert set(number.tolist()) == {1}
    assert (pixel // 16).min() == 2


def test_pictures_are_repeatable_and_show_a_person():
    arrays = body()
    covers = garments(arrays["template"], arrays["faces"], arrays["weights"])

    def picture(shift: float) -> np.ndarray:
        points = arrays["template"] * [40, -40, -40] + [48, 48, 0] + shift
        return render_person(points, arrays["faces"], covers, 96, np.random.default_rng(0))

    assert np.array_equal(picture(0), picture(0))
    changed = (np.abs(picture(500).astype(int) - picture(0)) > 40).any(-1)  # 500: out of sight
    assert 0.03 < changed.mean() < 0.4


def test_poses_are_long_tailed():
    poses = sample_poses(800, np.random.default_rng(0))
    turns = torch.from_numpy(poses)
    torch.testing.assert_close(turns @ turns.mT, torch.eye(3).double().expand_as(turns))
    away = roma.rotmat_geodesic_distance(turns, torch.from_numpy(mean_rotation(poses))).mean(1)
    assert away.quantile(0.99) > 2 * away.median()


def test_keypoints_are_the_projected_joints(bodies: Path):
    data = np.load(bodies / "ihmr" / "h36m_train.npz")
    for metres, pixels in zip(data["S"][:, :, :2], data["part"][:, :, :2], strict=True):
        zoom = np.ptp(pixels[:, 1]) / np.ptp(metres[:, 1])
        np.testing.assert_allclose(zoom * (metres - metres[14]) + pixels[14], pixels, atol=0.01)
    assert set(np.load(bodies / "ihmr" / "3dpw_test.npz")["gender"]) == {"m", "f"}


def test_motion_capture_is_split_by_sequence(tmp_path: Path):
    rng = np.random.default_rng(0)
    pose = rng.normal(0, 0.2, (80, 72)).astype(np.float32)
    mocap = str(tmp_path / "mocap.npz")
    np.savez(mocap, pose=pose, sequence=np.array([f"take{i // 4}" for i in range(80)]))
    counts = {"h36m_train": 20, "coco_2014_train": 8, "3dpw_test": 4}
    assert write_bodies(tmp_path / "out", counts, 32, 0, mocap)
    assert not write_bodies(tmp_path / "out", counts, 32, 0, mocap)  # it exists
    sets = [
        {Path(n).stem.split("_")[0] for n in np.load(tmp_path / f"out/{name}.npz")["imgname"]}
        for name in counts
    ]
    assert not any(one & other for one, other in itertools.combinations(sets, 2))
    with pytest.raises(ValueError, match=r"mocap\.npz: expected 500 poses for"):
        write_bodies(tmp_path / "o", {"3dpw_test": 500}, 32, 0, mocap)
    np.savez(tmp_path / "bad.npz", pose=np.zeros((3, 66)))
    with pytest.raises(ValueError, match=r"bad\.npz: expected an npz with pose \(N, 72\)"):
        read_poses(str(tmp_path / "bad.npz"), rng)


def test_harder_pictures_show_the_same_people(tmp_path: Path):
    people = {"h36m_train": 4, "coco_2014_train": 4, "3dpw_test": 2}
    kinds = (None, "blur", "occlusion", "pixels")
    for kind in kinds:
        write_bodies(tmp_path / str(kind), people, 96, 0, harder=kind)
    arrays = [np.load(tmp_path / str(kind) / "h36m_train.npz") for kind in kinds]
    name = arrays[0]["imgname"][0]
    images = [cv2.imread(str(tmp_path / str(kind) / name)).astype(float) for kind in kinds]
    for other, image in zip(arrays[1:], images[1:], strict=True):
        for key in arrays[0].files:
            np.testing.assert_array_equal(other[key], arrays[0][key])
        assert np.abs(image - images[0]).mean() > 2
    edges = [np.abs(np.diff(image, axis=0)).mean() for image in images]
    assert max(edges[1], edges[3]) < edges[0] / 2  # details are gone
    with pytest.raises(ValueError, match="Unknown difficulty 'fog'"):
        degraded(np.zeros((96, 96, 3), np.uint8), "fog", np.random.default_rng(0))
