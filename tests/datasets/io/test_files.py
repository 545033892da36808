"""Atomic writes, locks and digests."""

import errno
import fcntl
import os
import time
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


def test_a_digest_follows_size_time_and_content(tmp_path):
    images = [tmp_path / f"{index}.jpg" for index in range(3)]
    states = []
    for text, time_ in (("abc", 1), ("abc", 2), ("abcd", 2), ("abce", 2)):
        images[0].write_text(text)
        os.utime(images[0], ns=(time_, time_))
        states.append([files.manifest(map(str, images), content) for content in (False, True)])
        files.crc.cache_clear()
    images[2].write_text("new")  # was missing
    states.append([files.manifest(map(str, images), content) for content in (False, True)])
    by_time, by_content = zip(*states, strict=True)
    assert [by_time.index(name) for name in by_time] == [0, 1, 2, 2, 4]
    assert [by_content.index(name) for name in by_content] == [0, 0, 2, 3, 4]


def test_a_slow_digest_is_cached_for_a_while(tmp_path, monkeypatch):
    calls = []

    def slow(file):
        calls.append(file)
        time.sleep(0.002)

    monkeypatch.setattr(files, "file_state", slow)
    monkeypatch.setattr(files, "SLOW", 0.001)
    assert files.manifest(["a"], key="k") == files.manifest(["a"], key="k")
    assert len(calls) == 1
    files.manifest(["a"], key="other")
    assert len(calls) == 2
