"""The free body is a person in SMPL's format, and its dataset is long-tailed and repeatable."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from models.rotations import geodesic
from models.smpl import SMPL, check_body
from synthetic.mini.bodies import mean_rotation, write_bodies
from synthetic.mini.body import FILE, body, smpl_arrays
from synthetic.mini.body_drawing import garments, nearest, render_person
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
    men, women = (smpl_arrays(gender)["v_template"] for gender in ("male", "female"))
    assert np.ptp(men[:, 1]) > np.ptp(women[:, 1])


def test_its_file_is_small_and_its_mesh_whole():
    assert FILE.stat().st_size < 400 * 1024
    parts = body()
    np.testing.assert_allclose(parts["weights"].sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(parts["regressor"].sum(1), 1, rtol=1e-5)
    assert set(parts["faces"].ravel()) == set(range(len(parts["template"])))
    sizes = np.linalg.norm(parts["shapedirs"], axis=1).mean(0)  # (10,) metres
    assert sizes[0] == sizes.max()
    assert 0.01 < sizes[0] < 0.1


def test_the_nearest_triangle_is_seen():
    near = np.array([[2, 2, 1], [12, 2, 1], [2, 12, 1]], float)
    far = near + np.array([0, 0, 5])
    number, place = nearest(np.stack([far, near]), 16)
    assert set(number.tolist()) == {1}
    assert (place // 16).min() == 2


def test_pictures_are_repeatable_and_show_someone():
    parts = body()
    covers = garments(parts["template"], parts["faces"], parts["weights"])
    points = parts["template"] * [40, -40, -40] + [48, 48, 0]
    pictures = [
        render_person(points, parts["faces"], covers, 96, np.random.default_rng(0))
        for _ in range(2)
    ]
    assert np.array_equal(*pictures)
    away = render_person(points + 500, parts["faces"], covers, 96, np.random.default_rng(0))
    changed = (np.abs(away.astype(int) - pictures[0]) > 40).any(-1)
    assert 0.03 < changed.mean() < 0.4


def test_poses_are_long_tailed():
    poses = sample_poses(800, np.random.default_rng(0))
    turns = torch.from_numpy(poses)
    torch.testing.assert_close(turns @ turns.mT, torch.eye(3).double().expand_as(turns))
    away = geodesic(turns, torch.from_numpy(mean_rotation(poses))).mean(1)
    assert away.quantile(0.99) > 2 * away.median()


def test_a_folder_is_drawn_once(bodies: Path):
    counts = {"h36m_train": 40, "coco_2014_train": 24, "3dpw_test": 16}
    assert not write_bodies(bodies / "ihmr", counts, size=48, seed=0)
    files = {path.name for path in (bodies / "ihmr").iterdir()}
    assert {"SMPL_MALE.npz", "J_regressor_h36m.npy", "smpl_mean_params.npz", "static_fits"} <= files
    genders = np.load(bodies / "ihmr" / "3dpw_test.npz")["gender"]
    assert set(genders) == {"m", "f"}


def test_joints_are_where_the_keypoints_say(bodies: Path):
    """A keypoint of the written file is the picture of the joint it names."""
    data = np.load(bodies / "ihmr" / "h36m_train.npz")
    joints, part = data["S"][:, :, :2], data["part"][:, :, :2]
    for metres, pixels in zip(joints, part, strict=True):
        zoom = np.ptp(pixels[:, 1]) / np.ptp(metres[:, 1])
        placed = zoom * (metres - metres[14]) + pixels[14]
        np.testing.assert_allclose(placed, pixels, atol=0.01)


def test_motion_capture_is_split_by_sequence(tmp_path: Path):
    rng = np.random.default_rng(0)
    pose = rng.normal(0, 0.2, (80, 72)).astype(np.float32)
    names = np.array([f"take{i // 4}" for i in range(80)])
    np.savez(tmp_path / "mocap.npz", pose=pose, sequence=names)
    counts = {"h36m_train": 20, "coco_2014_train": 8, "3dpw_test": 4}
    write_bodies(tmp_path / "out", counts, 32, 0, str(tmp_path / "mocap.npz"))
    sets = {
        name: {Path(n).stem.split("_")[0] for n in np.load(tmp_path / f"out/{name}.npz")["imgname"]}
        for name in counts
    }
    for one, other in itertools.combinations(counts, 2):  # a held-out sequence is in one set, too
        assert not sets[one] & sets[other]
    with pytest.raises(ValueError, match=r"mocap\.npz: expected 500 poses for"):
        write_bodies(tmp_path / "o", {"3dpw_test": 500}, 32, 0, str(tmp_path / "mocap.npz"))
    np.savez(tmp_path / "bad.npz", pose=np.zeros((3, 66)))
    with pytest.raises(ValueError, match=r"bad\.npz: expected an npz with pose \(N, 72\)"):
        read_poses(str(tmp_path / "bad.npz"), rng)


def test_genders_have_bodies_of_their_own(bodies: Path):
    still, shape = torch.eye(3).expand(1, 24, 3, 3), torch.zeros(1, 10)
    man, woman = (SMPL(bodies / "ihmr", one).vertices(still, shape) for one in ("male", "female"))
    assert float((man - woman).norm(dim=-1).mean()) > 0.01
