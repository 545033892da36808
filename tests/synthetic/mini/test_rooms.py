"""The mini rooms: exact depth, NYUD2's histogram, one picture per seed, real format."""

from pathlib import Path

import numpy as np
import pytest

from datasets.depth import histogram
from datasets.nyud2 import DepthDataset
from synthetic.mini.rooms import (
    Room,
    cast,
    choose_rooms,
    depth_frequencies,
    frame,
    rays,
    sample_room,
    write_rooms,
)
from tests.recorded import recorded


def test_depth_of_a_wall_and_a_box():
    """Looking along the room: the wall is as far as the room is long, a box in front is nearer."""
    eye = np.array([2.0, 1.5, 1.0])
    low, high = np.array([[1.5, 0.0, 3.0]]), np.array([[2.5, 1.6, 3.5]])
    room = Room(np.array([4.0, 3.0, 6.0]), eye, np.eye(3), low, high)
    depth, surface, axis = (x.reshape(9, 13) for x in cast(room, rays(room, 9, 13)))
    assert depth[4, 6] == pytest.approx(2.0, rel=1e-6)
    assert (surface[4, 6], axis[4, 6]) == (6, 2)
    back = surface == 5
    assert back.any()
    np.testing.assert_allclose(depth[back], 5.0, rtol=1e-5)
    floor = surface == 2  # y = 0 is 1.5 m below the eye, so depth = 1.5 / -d_y
    slope = -rays(room, 9, 13).reshape(9, 13, 3)[..., 1]
    np.testing.assert_allclose(depth[floor], 1.5 / slope[floor], rtol=1e-4)


def test_depth_is_along_the_optical_axis():
    """Turned right by 90 degrees, every pixel of the side wall is as deep as the wall is far."""
    turn = np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])
    none = np.zeros((0, 3))
    room = Room(np.array([4.0, 3.0, 60.0]), np.array([1.0, 1.5, 30.0]), turn, none, none)
    depth, surface, _ = cast(room, rays(room, 10, 12))
    np.testing.assert_allclose(depth[surface == 1], 3.0, rtol=1e-5)
    assert (surface == 1).mean() > 0.5


def test_a_frame_depends_on_the_seed_only():
    (image, depth), again, other = frame((0, 1)), frame((0, 1)), frame((0, 2))
    np.testing.assert_array_equal(image, again[0])
    np.testing.assert_array_equal(depth, again[1])
    assert (image != other[0]).mean() > 0.5
    assert image.shape == (240, 320, 3)
    assert 0 <= depth.min() <= depth.max() <= 10


def test_frequencies_are_those_of_the_training_set():
    counts = recorded("depth_bins")["train_depth_histogram"]
    np.testing.assert_allclose(depth_frequencies(), counts / counts.sum(), atol=6e-6)  # rounded


def test_depths_of_the_chosen_rooms_follow_nyud2():
    total = np.zeros(100)
    for number in (chosen := choose_rooms(120, 0)):
        room = sample_room(np.random.default_rng((0, int(number))))
        depth = cast(room, rays(room, 24, 32))[0]
        total += histogram(np.where(depth <= 10, depth, 0))
    assert len(set(chosen.tolist())) == 120
    share = total / total.sum()
    ours, nyud2 = (p[7:].reshape(-1, 3).sum(1) for p in (share, depth_frequencies()))
    assert np.abs(ours - nyud2).sum() / 2 < 0.12  # 120 rooms; uniform depths have 0.5
    assert 0.02 < share[64:].sum() < 0.09  # few-shot depths; NYUD2 has 0.045


def test_the_layout_is_the_real_one_and_written_once(rooms: Path):
    folder = rooms / "nyud2"
    assert not write_rooms(folder, train=8, test=3, seed=0)
    train, test = ((folder / f"nyu2_{s}.csv").read_text().splitlines() for s in ("train", "test"))
    assert train[0] == "data/nyu2_train/room_000/00000.jpg,data/nyu2_train/room_000/00000.png"
    assert (len(train), len(test)) == (8, 3)
    assert len(DepthDataset(folder, "train", (28, 38))) == 8
