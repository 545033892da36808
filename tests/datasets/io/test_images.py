"""Decoding, resizing, augmenting: against PIL, NumPy and full-size decoding."""

import struct
import zlib

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from datasets.io import images
from tests.datasets.conftest import write_jpeg


@pytest.mark.parametrize("side", [64, 130, 300, 515, 640, 641])
def test_reduced_decoding_agrees_with_full_decoding(tmp_path, side):
    """The DCT's low-pass is not quite an area average: 1 grey level on average, 8 at the worst.

    Sides that 8 does not divide end in a part of a pixel, which must not stretch the picture.
    """
    write_jpeg(tmp_path / "a.jpg", side, side + 20)
    data = (tmp_path / "a.jpg").read_bytes()
    full = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    full = cv2.resize(full, (64, 64), interpolation=cv2.INTER_AREA)[:, :, ::-1]
    ours = images.decode(data, 64, "a.jpg")
    assert ours.shape == (64, 64, 3)
    difference = np.abs(ours.astype(int) - full)
    assert difference.mean() < 1
    assert difference.max() <= 8


def test_exif_rotation_is_not_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:16] = 255
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif)
    image = images.decode((tmp_path / "a.jpg").read_bytes(), 32, "a.jpg")
    assert image[4, 28].min() > 200
    assert image[28, 4].max() < 50


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.98])
def test_truncated_jpeg_is_named(tmp_path, kept):
    write_jpeg(tmp_path / "a.jpg", 200, 200)
    data = (tmp_path / "a.jpg").read_bytes()
    with pytest.raises(ValueError, match=r"folder/a\.jpg: expected a complete image.*truncated"):
        images.decode(data[: int(kept * len(data))], 64, "folder/a.jpg")


def test_augment_is_a_shift_with_black_border_or_its_mirror():
    """Every result is one of the 2 x 5 x 5 crops of the padded picture, and all of them turn up."""
    image = np.random.default_rng(0).integers(1, 255, (8, 8, 3), dtype=np.uint8)
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    crops = {}
    for top in range(5):
        for left in range(5):
            crop = padded[top : top + 8, left : left + 8]
            crops[crop.tobytes()] = (top, left, False)
            crops[crop[:, ::-1].tobytes()] = (top, left, True)
    torch.manual_seed(0)
    seen = {crops[images.augment(image, 2).tobytes()] for _ in range(600)}
    assert seen == set(crops.values())


def test_to_tensor_normalises_to_mean_and_std_of_a_half():
    image = np.random.default_rng(0).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    expected = (image.astype(float).transpose(2, 0, 1) / 255 - 0.5) / 0.5
    result = images.to_tensor(image)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)  # float32 rounding


def test_workers_may_be_forked_after_opencv_was_busy():
    """OpenCV's threads are gone in a fork; a worker that waited for them would wait for ever."""
    cv2.GaussianBlur(np.zeros((2000, 2000, 3), np.uint8), (0, 0), 5)
    assert cv2.getNumThreads() == 1


def test_an_image_of_too_many_pixels_is_not_decoded(tmp_path, monkeypatch):
    """A PNG of 16,000 x 16,000 equal pixels has 250 KB; decoded it would have 768 MB."""
    data = cv2.imencode(".png", np.zeros((400, 400), np.uint8))[1].tobytes()
    header = b"IHDR" + struct.pack(">II", 16_000, 16_000) + data[24:29]
    large = data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(ValueError, match=r"a\.png: an image of 16000 x 16000.*max_pixels"):
        images.decode(large, 32, "a.png")
    with pytest.raises(ValueError, match="more than max_pixels=100,000"):
        images.decode(data, 32, "a.png", max_pixels=100_000)


@pytest.mark.parametrize("ending", [".jpg", ".png", ".bmp", ".webp", ".tiff"])
def test_every_format_becomes_rgb(ending):
    data = cv2.imencode(ending, np.full((30, 20), 100, np.uint8))[1].tobytes()
    assert images.header(data) == ((30, 20), ending == ".jpg")
    np.testing.assert_array_equal(images.decode(data, 16, "a"), np.full((16, 16, 3), 100))


@pytest.mark.parametrize("data", [b"", b"\xff\xd8garbage", b"GIF89a", b"\x89PNG\r\n\x1a\n"])
def test_without_a_header_nothing_is_decoded(data, monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(ValueError, match="expected a complete image"):
        images.decode(data, 16, "a")
