"""The labelled .mat of NYU Depth v2: files of another kind are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from datasets.io.nyud2_frames import MatFrames
from tests.datasets.test_nyud2 import write_mat


def test_a_mat_that_is_not_hdf5(tmp_path: Path):
    (tmp_path / "labeled.mat").write_bytes(b"MATLAB 5.0 MAT-file")
    with pytest.raises(ValueError, match=r"labeled\.mat: expected the labelled set as HDF5"):
        MatFrames(tmp_path / "labeled.mat", None, "train")


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3, 3, 640, 480), np.uint8)
    layout[:] = h5py.VirtualSource("/etc/other.h5", "images", (3, 3, 640, 480))
    file.create_virtual_dataset("images", layout)


IMAGES, HOSTS = (3, 3, 640, 480), [("/etc/hosts", 0, 2**30)]
FOREIGN: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "missing": (lambda file: None, "images is missing"),
    "a group": (lambda file: file.create_group("images"), "images is not an array"),
    "an external link": (
        lambda file: file.update(images=h5py.ExternalLink("/etc/other.h5", "images")),
        "images is a link",
    ),
    "bytes of another file": (
        lambda file: file.create_dataset("images", IMAGES, "u1", external=HOSTS),
        "the numbers of images are in another file",
    ),
    "a view of another file": (virtual, "the numbers of images are in another file"),
    "another type": (
        lambda file: file.create_dataset("images", IMAGES, np.float64),
        "images has type float64",
    ),
    "strings": (lambda file: file.update(images=["x", "y"]), "images has type object"),
    "more than the file": (
        lambda file: file.create_dataset("images", (2**40, *IMAGES[1:]), np.uint8),
        "the file has 0",
    ),
    "huge chunks": (
        lambda file: file.create_dataset("images", (2**40,), "u1", chunks=(2**29,)),
        "images has chunks of more than",
    ),
    "another shape": (
        lambda file: file.create_dataset("images", (3, 4), "u1", data=[[0] * 4] * 3),
        r"expected images \(P, 3, W, H\)",
    ),
    "too many pixels": (
        lambda file: file.create_dataset("images", (3, 3, 2**14, 2**14), "u1", chunks=(1, 1, 9, 9)),
        "more than 50,000,000",
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_mat_with_images_of_another_kind_is_refused(what: str, tmp_path: Path):
    mat, splits = write_mat(tmp_path)
    change, message = FOREIGN[what]
    with h5py.File(mat, "r+") as file:
        file.move("images", "other")
        change(file)
    with pytest.raises(ValueError, match=rf"labeled\.mat: .*{message}.*Download"):
        MatFrames(mat, splits, "train")


def test_splits_of_another_release_or_damaged(tmp_path: Path):
    mat, splits = write_mat(tmp_path)
    savemat(splits, {"trainNdxs": [[9]], "testNdxs": [[2]]})
    with pytest.raises(ValueError, match=r"splits\.mat: expected numbers of the 3 frames.*got 9"):
        MatFrames(mat, splits, "train")
    splits.write_bytes(b"x")
    with pytest.raises(ValueError, match=r"splits\.mat: expected trainNdxs and testNdxs"):
        MatFrames(mat, splits, "train")
