"""Files that are whole or not there, and what they hold checked when it is read back."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


class DiskFull(OSError):
    """There was no room for a file; its text names the file and says what to do."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the user's share of it, a file's limit


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` once it is complete and on disk.

    Whatever happens before that, be it kill -9 or a full disk, an older file stays as it is.
    """
    with space_for(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")
        try:
            with temporary.open("w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name, too, is on disk
        finally:
            os.close(folder)


@contextlib.contextmanager
def space_for(path: Path) -> Iterator[None]:
    """An error of the disk while `path` is written names it and says what to do."""
    try:
        yield
    except DiskFull:
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        kept = "what was there before is kept" if path.exists() else "nothing was there before"
        raise DiskFull(
            error.errno,
            f"{path}: could not be written ({os.strerror(error.errno)}); {kept}. Free some disk "
            "space and start the same command again, it goes on from what is whole",
        ) from error


def write_with_sum(path: Path, data: bytes) -> None:
    """Write a file and beside it <name>.sha256, as sha256sum does; `check_sum` reads it back."""
    beside = path.with_name(path.name + ".sha256")
    beside.unlink(missing_ok=True)  # killed in between, the file is whole and has no sum
    with whole(path) as file:
        file.write(data)
    with whole(beside) as file:
        file.write(f"{hashlib.sha256(data).hexdigest()}  {path.name}\n".encode())


def check_sum(path: Path, advice: str) -> None:
    """Compare a file with its <name>.sha256, if there is one; `advice` says what to do."""
    beside = path.with_name(path.name + ".sha256")
    if not beside.is_file():
        return
    expected = beside.read_text(errors="replace").split()[:1]
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if expected != [found]:
        raise ValueError(f"{path}: does not match {beside.name}, so it is damaged. {advice}")
