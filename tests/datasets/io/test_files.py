"""Atomic writes, locks, and folders that cannot be written to."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from datasets.io import files


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_two_writers_of_a_file_do_not_mix(tmp_path: Path):
    path = tmp_path / "a.json"
    with files.atomic_write(path) as one:
        one.write(b"one")
        with files.atomic_write(path) as other:
            other.write(b"other")
            one.write(b"one")
            assert not path.exists()
        assert path.read_bytes() == b"other"
    assert path.read_bytes() == b"oneone"
    (tmp_path / "b").touch()
    assert path.stat().st_mode == (tmp_path / "b").stat().st_mode
    assert names(tmp_path) == ["a.json", "b"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_an_exception_keeps_the_older_file_and_leaves_no_temporary(tmp_path: Path, error):
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def write() -> None:
        with files.atomic_write(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error), match=r"a\.json: could not be written.*to resume|^$"):
        write()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.json"]


def test_the_temporary_file_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "0")
    (tmp_path / "outside").write_bytes(b"kept")
    (tmp_path / ".a.json.0.tmp").symlink_to(tmp_path / "outside")
    with pytest.raises(FileExistsError), files.atomic_write(tmp_path / "a.json") as file:
        file.write(b"new")
    assert (tmp_path / "outside").read_bytes() == b"kept"


def test_without_locks_a_file_is_written_and_a_lock_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with files.atomic_write(tmp_path / "a.json") as file:
        file.write(b"new")
    assert (tmp_path / "a.json").read_bytes() == b"new"
    with (tmp_path / "lock").open("w") as file, pytest.raises(OSError, match="lock: this file"):
        files.lock(file)
