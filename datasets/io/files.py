"""Files that are whole or not there, and what they hold checked when it is read back."""

import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO


class DiskFull(OSError):
    """There was no room for a file; its text names the file and says what to do."""


class NoLocks(OSError):
    """A file cannot be locked where it is."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the user's share of it, a file's limit
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` once it is complete and on disk.

    Whatever happens before that, be it kill -9 or a full disk, an older file stays as it is. Of two
    processes that write the same file, one waits for the other.
    """
    with space_for(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")
        with _alone(temporary) as file:
            try:
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


def _alone(path: Path) -> BinaryIO:
    """The file, empty and open to be written; no other process has it between our open and close,
    unless there are no locks."""
    while True:
        file = open(path, "r+b", opener=_or_new)  # noqa: SIM115, it is handed on
        with contextlib.suppress(NoLocks):
            lock(file)
        with contextlib.suppress(FileNotFoundError):  # another one has finished, and renamed it
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                file.truncate()
                return file
        file.close()


def _or_new(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o666)


def lock(file: IO, wait: bool = True) -> None:
    """Keep other processes that ask for it from a file; the lock is gone with this process. Without
    `wait`, a file that is taken is a BlockingIOError.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise NoLocks(
            error.errno,
            f"{file.name}: this file system has no locks ({os.strerror(error.errno)}), without "
            "which two commands could write the same files at once. Choose a folder on another "
            "one, or have it mounted with locks (Lustre: -o flock)",
        ) from None


def unlock(file: IO) -> None:
    """Give it back before the file is closed; without locks there is nothing to give."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)


def writable(folder: Path) -> None:
    """Refuse, before hours of work, a folder that nothing can be written to."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


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
    with atomic_write(path) as file:
        file.write(data)
    with atomic_write(beside) as file:
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
