"""Strings that NumPy has pickled are read, and a pickle that is a program runs nothing."""

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy
from numpy.typing import NDArray

from datasets.io.strings import read_array

NAMES = ["images/a b.jpg", "b/\u00e9.png", "", "c"]


def read(path: Path) -> NDArray:
    with np.load(path, allow_pickle=False) as file:
        return read_array(file, "imgname")


def write_pickled(path: Path, content: bytes, shape: tuple[int, ...] = (4,)) -> Path:
    """An npz whose imgname says that it is an array of objects and goes on with these bytes."""
    buffer = io.BytesIO()
    header = {"descr": "|O", "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(buffer, header)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("imgname.npy", buffer.getvalue() + content)
    return path


@pytest.mark.parametrize("kind", [str, np.str_, str.encode, lambda name: np.bytes_(name.encode())])
def test_objects_that_are_strings(tmp_path: Path, kind):
    array = np.empty(4, object)
    array[:] = [kind(name) for name in NAMES]
    np.savez(tmp_path / "a.npz", imgname=array)
    assert read(tmp_path / "a.npz").tolist() == NAMES
    assert read(tmp_path / "a.npz").dtype.kind == "U"
    np.savez_compressed(tmp_path / "b.npz", imgname=array)
    assert read(tmp_path / "b.npz").tolist() == NAMES


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_and_the_old_name_of_numpy(tmp_path: Path, protocol: int):
    for kind in (str, np.str_, str.encode):
        array = np.empty(4, object)
        array[:] = [kind(name) for name in NAMES]
        content = pickle.dumps(array, protocol)
        assert read(write_pickled(tmp_path / "a.npz", content)).tolist() == NAMES
    if protocol < 4:  # later ones write the length of a name before it
        old = content.replace(b"numpy._core", b"numpy.core")
        assert old != content
        assert read(write_pickled(tmp_path / "b.npz", old)).tolist() == NAMES


def test_plain_arrays_are_numpys(tmp_path: Path):
    for array in (np.array(NAMES), np.zeros((3, 2)), np.array([b"x"])):
        np.savez(tmp_path / "a.npz", imgname=array)
        np.testing.assert_array_equal(read(tmp_path / "a.npz"), array)


class Program:
    """Pickled, it is a call, with a state if there is one."""

    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


def hidden(program: Program, place: str) -> Program:
    """An array of objects with the program in some place of it."""
    array = np.empty(4, object)
    array[:] = NAMES
    function, arguments, state = array.__reduce__()  # pyright: ignore
    if place == "item":
        return Program(function, arguments, (*state[:4], [program]))
    if place == "shape":
        return Program(function, arguments, (1, program, *state[2:]))
    if place == "kind":
        return Program(function, (program, *arguments[1:]), state)
    return program


@pytest.mark.parametrize("place", ["item", "shape", "kind", "whole"])
def test_nothing_is_executed(tmp_path: Path, place: str):
    trace = tmp_path / "trace"
    for program in (
        Program(os.system, (f"touch {trace}",)),
        Program(eval, (f"open({str(trace)!r}, 'w')",)),
        Program(np.save, (str(trace), 0)),
        Program(np.memmap, (str(trace), "uint8", "w+", 0, (4,))),
        Program(getattr, ("a", "upper")),
    ):
        path = write_pickled(tmp_path / "evil.npz", pickle.dumps(hidden(program, place)))
        with pytest.raises(ValueError, match=r"it asks for .*Nothing in it was executed"):
            read(path)
        assert not list(tmp_path.glob("trace*"))


def test_what_a_pickle_may_name_cannot_be_changed(tmp_path: Path):
    """A pickle can set attributes of what it names: here that fails, and nothing is left behind."""
    for name in (b"numpy\ndtype", b"_codecs\nencode", b"numpy._core.multiarray\n_reconstruct"):
        content = b"c" + name + b"\n(N}(V__init__\nVx\nutb."
        with pytest.raises(ValueError, match="Nothing in it was executed"):
            read(write_pickled(tmp_path / "a.npz", content))
    test_objects_that_are_strings(tmp_path, np.str_)


@pytest.mark.parametrize("item", [None, 3, 2.5, ["a"], {"a": "b"}, np.zeros(2), np.float64(1)])
def test_other_objects_are_refused(tmp_path: Path, item):
    array = np.empty(4, object)
    array[:] = NAMES
    array[2] = item
    np.savez(tmp_path / "a.npz", imgname=array)
    with pytest.raises(ValueError, match="imgname is an array of objects that are not all strings"):
        read(tmp_path / "a.npz")


def test_damaged_and_misshapen_ones(tmp_path: Path):
    array = np.empty((2, 2), object)
    array[:] = "a"
    np.savez(tmp_path / "a.npz", imgname=array)
    with pytest.raises(ValueError, match="not a list of items"):
        read(tmp_path / "a.npz")
    for content in (b"", b"\x80\x04", pickle.dumps("abc"), pickle.dumps(NAMES), b"cos\nsystem\n."):
        with pytest.raises(ValueError, match="imgname is an array of objects"):
            read(write_pickled(tmp_path / "b.npz", content))
