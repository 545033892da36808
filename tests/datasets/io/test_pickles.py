"""Strings that NumPy has pickled are read, and a pickle that is a program runs nothing."""

import codecs
import io
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy

from datasets.io.arrays import Reader, read_npz, value_of

NAMES = ["images/a b.jpg", "b/\u00e9.png", "", "c"]


def read(path: Path, content: bytes) -> np.ndarray:
    """Read an npz whose imgname is an array of objects with this pickle."""
    buffer = io.BytesIO()
    npy.write_array_header_1_0(buffer, {"descr": "|O", "fortran_order": False, "shape": (4,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("imgname.npy", buffer.getvalue() + content)
    return read_npz(path)["imgname"]


def objects(items: list) -> np.ndarray:
    array = np.empty(len(items), object)
    array[:] = items
    return array


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", [str, np.str_, str.encode, lambda name: np.bytes_(name.encode())])
def test_strings_in_every_protocol(tmp_path: Path, kind, protocol: int):
    content = pickle.dumps(objects([kind(name) for name in NAMES]), protocol)
    made = read(tmp_path / "a.npz", content)
    assert (made.tolist(), made.dtype.kind) == (NAMES, "U")
    if protocol < 4:  # later ones write the length of a name before it
        old = content.replace(b"numpy._core", b"numpy.core")
        assert read(tmp_path / "b.npz", old).tolist() == NAMES


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i8", "|u1", "|b1", "<U3"])
def test_arrays_of_numbers(kind: str, protocol: int):
    for array in (np.eye(3).astype(kind), np.asfortranarray(np.eye(3, 2).astype(kind))):
        made = value_of(Reader(io.BytesIO(pickle.dumps(array, protocol)), "latin1").load())
        np.testing.assert_array_equal(made, array)
        assert made.dtype == array.dtype


class Program:
    """Pickled, it is a call of a function, with a state if there is one."""

    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


def hidden(program: Program, place: str) -> Program:
    """Hide a program in an array of objects."""
    function, arguments, state = objects(NAMES).__reduce__()  # pyright: ignore
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
        Program(np.memmap, (str(trace), "uint8", "w+", 0, (4,))),
        Program(getattr, ("a", "upper")),
    ):
        with pytest.raises(ValueError, match=r"it asks for .*never executed"):
            read(tmp_path / "evil.npz", pickle.dumps(hidden(program, place)))
        assert not list(tmp_path.glob("trace*"))


def test_a_pickle_cannot_change_what_it_names(tmp_path: Path):
    for name in (b"numpy\ndtype", b"_codecs\nencode", b"numpy._core.multiarray\n_reconstruct"):
        content = b"c" + name + b"\n(N}(V__init__\nVx\nutb."
        with pytest.raises(ValueError, match="never executed"):
            read(tmp_path / "a.npz", content)
    test_strings_in_every_protocol(tmp_path, np.str_, 2)


OBJECT = Program(np.dtype, ("O", False, True), (3, "|", None, None, None, -1, -1, 0))
ROT13 = Program(codecs.encode, ("a", "rot13"))
OTHERS = [ROT13, None, 3, 2.5, ["a"], {"a": "b"}, np.zeros(2), np.float64(0)]
FUNCTION, ARGUMENTS, STATE = np.zeros(4, object).__reduce__()  # pyright: ignore
# NumPy would take the items of these from addresses in the file.
SCALAR = Program(np.float64(0).__reduce__()[0], (OBJECT, b"\0" * 8))
ARRAY = Program(FUNCTION, ARGUMENTS, (*STATE[:4], b"\x41" * 32))


@pytest.mark.parametrize("item", [*OTHERS, SCALAR, ARRAY], ids=lambda item: type(item).__name__)
def test_other_objects_are_refused(tmp_path: Path, item):
    for content in (pickle.dumps(objects(["a", item])), pickle.dumps(hidden(item, "item"))):
        with pytest.raises(ValueError, match="imgname contains objects that are not all strings"):
            read(tmp_path / "a.npz", content)


def test_damaged_and_misshapen_ones(tmp_path: Path):
    table = pickle.dumps(np.full((2, 2), "a", object))
    for content in (table, b"", b"\x80\x04", pickle.dumps("abc"), b"cos\nsystem\n."):
        with pytest.raises(ValueError, match="imgname contains objects"):
            read(tmp_path / "b.npz", content)


def test_a_few_bytes_allocate_little_memory(tmp_path: Path):
    index = (10_000_000).to_bytes(4, "little")  # of the memo, which is an array in C
    tracemalloc.start()
    with pytest.raises(ValueError, match="imgname contains objects"):
        read(tmp_path / "a.npz", b"\x80\x02}r" + index + b".")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
