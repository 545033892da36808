"""The steps of the released depth code, against numbers that its own transforms gave."""

import numpy as np
import pytest

from datasets.depth import CROP
from datasets.depth_released import seen_depth, seen_image


def frame(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(., ., 3) and (., .) uint8 that tell every pixel from its neighbours."""
    y, x = np.mgrid[:height, :width]
    depth = (y * 7 + x * 13) ** 2 // 97 % 251
    green, blue = (y * 3 + x * 5) ** 2 // 31 % 256, (x * 11 + y) ** 2 // 53 % 253
    return np.stack([depth, green, blue], -1).astype(np.uint8), depth.astype(np.uint8)


# A frame, its pixels (0, 0), (0, 303), (100, 150), (227, 303) of 16-bit depth, their sum over the
# crop, the pixels (0, 0), (100, 150), (227, 303) of the image, and their sum.
EVALUATION = {
    (480, 640): (
        [9250, 37, 5291, 8325],
        321034681,
        [[149, 169, 162], [117, 133, 153], [131, 119, 116]],
        26135198,
    ),
    (240, 320): (
        [8103, 3626, 814, 2849],
        320609033,
        [[219, 108, 166], [22, 178, 148], [77, 47, 184]],
        26104969,
    ),
    (427, 561): (
        [9139, 8695, 999, 3071],
        321430692,
        [[153, 150, 79], [101, 86, 125], [108, 31, 113]],
        26116961,
    ),
}
# The depth (50, 75) of 114 x 152 and its sum, the image's pixel (100, 150) and its sum, of a frame
# mirrored and turned by 3.3 degrees.
TRAINING = {
    (480, 640): (99, 2165368, [130, 120, 136], 26072641),
    (240, 320): (92, 2161862, [20, 164, 170], 26051420),
    (427, 561): (110, 2165196, [158, 72, 150], 26039838),
}


@pytest.mark.parametrize("size", EVALUATION)
def test_evaluation_sees_the_very_pixels(size: tuple[int, int]):
    pixels, total, colours, sum_of_colours = EVALUATION[size]
    image, depth = frame(*size)
    seen = seen_depth(depth.astype(np.uint16) * 37)
    assert seen.shape == CROP
    assert seen[[0, 0, 100, 227], [0, 303, 150, 303]].tolist() == pixels
    assert seen.sum(dtype=int) == total
    seen = seen_image(image)
    assert seen[[0, 100, 227], [0, 150, 303]].tolist() == colours
    assert seen.sum(dtype=int) == sum_of_colours


@pytest.mark.parametrize("size", TRAINING)
def test_training_mirrors_turns_and_resizes(size: tuple[int, int]):
    pixel, total, colours, sum_of_colours = TRAINING[size]
    image, depth = frame(*size)
    seen = seen_depth(depth, (114, 152), angle=3.3, mirror=True)
    assert (seen.shape, seen[50, 75], seen.sum(dtype=int)) == ((114, 152), pixel, total)
    seen = seen_image(image, angle=3.3, mirror=True)
    assert (seen[100, 150].tolist(), seen.sum(dtype=int)) == (colours, sum_of_colours)


def test_of_two_pixels_as_near_the_later_one_is_taken():
    depth = np.arange(480 * 640, dtype=np.float32).reshape(480, 640)
    np.testing.assert_array_equal(seen_depth(depth), depth[13:469:2, 17:625:2])


def test_a_narrow_frame_is_black_beside():
    image, depth = frame(320, 240)
    seen = seen_depth(depth)
    np.testing.assert_array_equal(seen[:, 32:272], depth[46:274])
    assert not seen[:, :32].any()
    assert not seen[:, 272:].any()
    assert seen_image(image).shape == (*CROP, 3)
