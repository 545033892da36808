"""Arrays of HDF5 files from elsewhere."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from datasets.io import hdf5


def virtual(file: h5py.File, name: str) -> None:
    layout = h5py.VirtualLayout((3,), np.int64)
    layout[:] = h5py.VirtualSource("/etc/other.h5", "a", (3,))
    file.create_virtual_dataset(name, layout)


CHANGES: dict[str, tuple[Any, str]] = {
    "nothing": (lambda file: None, "a is missing"),
    "a group": (lambda file: file.create_group("a"), "a is no array"),
    "a soft link": (lambda file: file.update(a=h5py.SoftLink("/b")), "a is a soft link"),
    "another file": (
        lambda file: file.update(a=h5py.ExternalLink("/etc/other.h5", "a")),
        "a is a link to another file",
    ),
    "raw bytes of another file": (
        lambda file: file.create_dataset("a", (3,), "i8", external=[("/etc/hosts", 0, 24)]),
        "numbers of a are in another file",
    ),
    "a view of another file": (lambda file: virtual(file, "a"), "numbers of a are in another file"),
    "texts": (lambda file: file.update(a=["x", "y"]), "a holds object"),
    "another kind": (lambda file: file.update(a=np.zeros(3)), "a holds float64"),
    "more than there is": (
        lambda file: file.create_dataset("a", (2**40,), "i8"),
        "a should have 8,796,093,022,208 bytes, the file has 0",
    ),
    "huge chunks": (
        lambda file: file.create_dataset("a", (2**40,), "i8", chunks=(2**26,)),
        r"a comes in chunks of \(67108864,\)",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_array_is_in_the_file_or_refused(what: str, tmp_path: Path):
    change, expected = CHANGES[what]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["b"] = np.arange(3)
        change(file)
        with pytest.raises(ValueError, match=expected):
            hdf5.array(file, "a", "iu", chunk_bytes=1 << 20)
        np.testing.assert_array_equal(hdf5.array(file, "b", "iu"), [0, 1, 2])
