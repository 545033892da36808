"""Paired transforms against slow rewrites and the released code, and the bins of NYUD2-DIR."""

import cv2
import numpy as np
import pytest
import torch

from datasets import depth as maps

RNG = np.random.default_rng(0)
FRAME = RNG.integers(0, 255, (240, 320), np.uint8)


@pytest.mark.parametrize("mirror", [False, True])
def test_centre_crop_at_full_and_half_size(mirror: bool):
    expected = FRAME[6:234, 8:312][:, :: -1 if mirror else 1]
    where = maps.placement((240, 320), maps.CROP, mirror=mirror)
    np.testing.assert_array_equal(maps.sample(FRAME, maps.CROP, where, nearest=True), expected)
    half = maps.sample(FRAME, (114, 152), maps.placement((240, 320), (114, 152), 0, mirror), True)
    blocks = expected.reshape(114, 2, 152, 2).transpose(0, 2, 1, 3).reshape(114, 152, 4)
    assert (half[..., None] == blocks).any(-1).all()


def test_a_frame_of_twice_the_size_is_averaged_for_images_and_sampled_for_depth():
    large = RNG.integers(0, 255, (480, 640), np.uint8)
    where = maps.placement((480, 640), maps.CROP)
    image = maps.sample(large, maps.CROP, where, nearest=False)
    mean = large.reshape(240, 2, 320, 2).mean((1, 3))[6:234, 8:312]
    assert np.abs(image - mean).max() <= 1  # rounding, of OpenCV's fixed-point weights as well
    depth = maps.sample(large, maps.CROP, where, nearest=True)
    blocks = large.reshape(240, 2, 320, 2).transpose(0, 2, 1, 3)[6:234, 8:312].reshape(228, 304, 4)
    assert (depth[..., None] == blocks).any(-1).all()  # a pixel of the block, never a mixture


def test_image_and_depth_turn_together():
    """A ramp in the image and the same ramp as depth stay equal wherever the frame is seen."""
    ramp = np.tile(np.arange(320, dtype=np.float32), (240, 1))
    for turned in ((5.0, False), (-3.0, True)):
        where, small = (maps.placement((240, 320), out, *turned) for out in (maps.CROP, (57, 76)))
        image = maps.sample(ramp, maps.CROP, where, nearest=False)
        depth = maps.sample(ramp, (57, 76), small, nearest=True)
        inside = slice(8, -8)  # away from the corners that the rotation empties
        coarse = cv2.resize(image, (76, 57), interpolation=cv2.INTER_AREA)[inside, inside]
        # half a source pixel: nearest sampling; the rest OpenCV's 1/32 pixel steps
        assert np.abs(depth[inside, inside] - coarse).max() < 0.6


def test_colours_are_the_steps_one_by_one():
    """Against the released order: lighting, then the three changes, applied to the image itself."""
    image = RNG.random((5, 7, 3))
    torch.manual_seed(3)
    matrix = maps.random_colours(image.mean((0, 1)))
    ours = image @ matrix[:, :3].T + matrix[:, 3]
    torch.manual_seed(3)
    steps, amounts = torch.randperm(3).tolist(), (1 + 0.4 * (2 * torch.rand(3) - 1)).tolist()
    axes = [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
    light = (0.1 * torch.randn(3)).numpy() * [0.2175, 0.0188, 0.0045]
    slow = image + np.array(axes) @ light
    for step, amount in zip(steps, amounts, strict=True):
        grey = slow @ [0.299, 0.587, 0.114]
        other = [0.0, grey.mean(), grey[..., None]][step]
        slow = amount * slow + (1 - amount) * other
    np.testing.assert_allclose(ours, slow, atol=1e-6)  # the lights are drawn in float32


def test_tensors_and_back():
    image = RNG.integers(0, 255, (6, 8, 3), np.uint8)
    tensor = maps.to_tensor(image)
    expected = (image / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(tensor.numpy().transpose(1, 2, 0), expected, atol=1e-5)
    np.testing.assert_array_equal(maps.to_image(tensor), image)


def test_every_millimetre_is_in_its_bin():
    metres = np.arange(700, 10_001, dtype=np.uint16) / np.float32(1000)
    expected = np.minimum(np.arange(700, 10_001) // 100, 99)
    np.testing.assert_array_equal(maps.bins_of(metres), expected)


def test_the_mask_takes_as_many_pixels_of_every_bin():
    bins = RNG.choice(100, (4, 30, 40), p=np.linspace(1, 3, 100) / np.linspace(1, 3, 100).sum())
    bins[bins == 50] = 51  # an empty bin stays empty
    mask = maps.balanced_mask(bins, seed=0)
    counts = np.bincount(bins[mask > 0], minlength=100)
    least = np.bincount(bins.ravel(), minlength=100)[[b for b in range(7, 100) if b != 50]].min()
    assert counts[:7].sum() == counts[50] == 0
    assert set(np.delete(counts[7:], 43)) == {least}
    assert (mask == maps.balanced_mask(bins, seed=0)).all()
    assert (mask != maps.balanced_mask(bins, seed=1)).any()
    with pytest.raises(ValueError, match="nothing to balance"):
        maps.balanced_mask(np.zeros((1, 4, 4), int), 0)


def frame(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(., ., 3) and (., .) uint8 that tell every pixel from its neighbours."""
    y, x = np.mgrid[:height, :width]
    depth = (y * 7 + x * 13) ** 2 // 97 % 251
    green, blue = (y * 3 + x * 5) ** 2 // 31 % 256, (x * 11 + y) ** 2 // 53 % 253
    return np.stack([depth, green, blue], -1).astype(np.uint8), depth.astype(np.uint8)


# Of a frame of this size, by the released code: four pixels of 16-bit depth and their sum over the
# crop, three of the image and the sum; of a frame mirrored and turned by 3.3 degrees: one pixel of
# the depth at 114 x 152 and the sum, one of the image and the sum.
RELEASED = {
    (480, 640): (
        ([9250, 37, 5291, 8325], 321034681),
        ([[149, 169, 162], [117, 133, 153], [131, 119, 116]], 26135198),
        (99, 2165368),
        ([130, 120, 136], 26072641),
    ),
    (240, 320): (
        ([8103, 3626, 814, 2849], 320609033),
        ([[219, 108, 166], [22, 178, 148], [77, 47, 184]], 26104969),
        (92, 2161862),
        ([20, 164, 170], 26051420),
    ),
    (427, 561): (
        ([9139, 8695, 999, 3071], 321430692),
        ([[153, 150, 79], [101, 86, 125], [108, 31, 113]], 26116961),
        (110, 2165196),
        ([158, 72, 150], 26039838),
    ),
}


@pytest.mark.parametrize("size", RELEASED)
def test_pixels_of_the_released_code(size: tuple[int, int]):
    image, depth = frame(*size)
    seen = maps.released_depth(depth.astype(np.uint16) * 37)
    pixels = seen[[0, 0, 100, 227], [0, 303, 150, 303]].tolist()
    assert (pixels, seen.sum(dtype=int)) == RELEASED[size][0]
    seen = maps.released_image(image)
    assert (seen[[0, 100, 227], [0, 150, 303]].tolist(), seen.sum(dtype=int)) == RELEASED[size][1]
    seen = maps.released_depth(depth, (114, 152), angle=3.3, mirror=True)
    assert (seen[50, 75], seen.sum(dtype=int)) == RELEASED[size][2]
    seen = maps.released_image(image, angle=3.3, mirror=True)
    assert (seen[100, 150].tolist(), seen.sum(dtype=int)) == RELEASED[size][3]


def test_a_narrow_frame_is_black_on_both_sides():
    depth = frame(320, 240)[1]
    expected = np.pad(depth[46:274], ((0, 0), (32, 32)))
    np.testing.assert_array_equal(maps.released_depth(depth), expected)
