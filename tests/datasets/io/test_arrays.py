"""Sizes are checked before arrays are unpacked, and errors name the file."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from datasets.io import arrays


def test_what_was_written_is_read(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(6).reshape(2, 3), y=np.array(["a", "bc"]))
    read = arrays.read_npz(tmp_path / "a.npz")
    np.testing.assert_array_equal(read["x"], np.arange(6).reshape(2, 3))
    assert read["y"].tolist() == ["a", "bc"]
    np.save(tmp_path / "a.npy", np.eye(3))
    for mapped in (False, True):
        np.testing.assert_array_equal(arrays.read_npy(tmp_path / "a.npy", mapped=mapped), np.eye(3))


def test_bombs_are_not_unpacked(tmp_path):
    zeros = np.zeros(10_000_000, np.uint8)
    np.savez_compressed(tmp_path / "a.npz", x=zeros)
    savemat(tmp_path / "a.mat", {"x": zeros}, do_compression=True)
    for path, read in (("a.npz", arrays.read_npz), ("a.mat", arrays.read_mat)):
        assert (tmp_path / path).stat().st_size < 100_000
        with pytest.raises(ValueError, match="bytes, more than max_bytes=1,000,000"):
            read(tmp_path / path, 1_000_000)
        assert read(tmp_path / path)["x"].size == 10_000_000


def test_an_array_that_claims_more_than_it_has(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(4))
    path.write_bytes(path.read_bytes().replace(b"(4,)", b"(9000000000000,)"))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(path, "x.npy")
    for name, read in (("a.npz", arrays.read_npz), ("a.npy", arrays.read_npy)):
        with pytest.raises(ValueError, match=rf"{name}: .*more than max_bytes"):
            read(tmp_path / name)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_a_cut_file_is_named(kind, share, tmp_path):
    path = tmp_path / f"a.{kind}"
    (np.savez if kind == "npz" else np.save)(path, np.arange(1000))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ValueError, match=rf"a\.{kind}: expected .*Download or make the file again"):
        getattr(arrays, f"read_{kind}")(path)


def test_a_changed_byte_in_an_npz_is_noticed(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros(1000))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.npz: .*CRC"):
        arrays.read_npz(path)


def test_a_struct_with_more_cells_than_fit(tmp_path):
    path = tmp_path / "a.mat"
    cells = np.array([["a", "b", "c"]], object)
    savemat(path, {"x": {"full_path": cells, "n": np.arange(3)}}, do_compression=True)
    assert arrays.read_mat(path)["x"]["full_path"][0, 0].shape == (1, 3)
    data = path.read_bytes()
    unpacked = zlib.decompress(data[136:])
    dims = (1).to_bytes(4, "little") + (3).to_bytes(4, "little")
    at = unpacked.rindex(dims, 0, unpacked.index(b"a", 100))
    changed = unpacked[: at + 4] + (2**31 - 1).to_bytes(4, "little") + unpacked[at + 8 :]
    packed = zlib.compress(changed)
    path.write_bytes(data[:132] + len(packed).to_bytes(4, "little") + packed)
    with pytest.raises(ValueError, match=r"shape \[1, 2147483647\] does not fit"):
        arrays.read_mat(path)


def test_files_are_read_within_bounds_everywhere():
    """Others call np.load only for cached features, which a run writes and checks by digest."""
    folders = ("datasets", "engine", "losses", "metrics", "models", "scripts", "synthetic")
    root = Path(__file__).resolve().parents[3]
    files = [path for folder in folders for path in (root / folder).rglob("*.py")]
    callers = {
        path.relative_to(root).as_posix() for path in files if "np.load(" in path.read_text()
    }
    own = {"engine/features/cache.py"}
    assert callers - own == {"datasets/io/arrays.py", "losses/mixture.py"}
