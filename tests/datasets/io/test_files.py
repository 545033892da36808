"""Files that several processes write, and places that cannot be written to."""

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from datasets.io import files


def test_of_two_that_write_a_file_one_waits(tmp_path: Path):
    """Each writes in two pieces: without waiting, one would empty or rename the other's."""
    path, failed = tmp_path / "table.json", []

    def write(letter: bytes) -> None:
        try:
            for _ in range(20):
                with files.atomic_write(path) as file:
                    file.write(letter * 1000)
                    file.flush()
                    time.sleep(0.001)
                    file.write(letter * 1000)
                assert path.read_bytes() in (b"a" * 2000, b"b" * 2000)
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failed
    assert [file.name for file in tmp_path.iterdir()] == ["table.json"]


def test_half_a_file_of_a_dead_process_is_no_part_of_the_next(tmp_path: Path):
    (tmp_path / "a.json.tmp").write_bytes(b"x" * 100)
    with files.atomic_write(tmp_path / "a.json") as file:
        file.write(b"new")
    assert (tmp_path / "a.json").read_bytes() == b"new"
    assert not (tmp_path / "a.json.tmp").exists()


def test_without_locks_a_file_is_written_and_a_lock_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with files.atomic_write(tmp_path / "a.json") as file:
        file.write(b"new")
    assert (tmp_path / "a.json").read_bytes() == b"new"
    with (tmp_path / "lock").open("w") as file, pytest.raises(files.NoLocks, match="lock: this"):
        files.lock(file)


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path):
    files.writable(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        files.writable(tmp_path / "file")
