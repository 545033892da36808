"""Files: atomic writes, locks, digests, and limits on files from elsewhere."""

import contextlib
import errno
import fcntl
import functools
import hashlib
import itertools
import os
import secrets
import time
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, NamedTuple

MAX_PIXELS = 50_000_000  # of an image; a PNG of 1 MB can decode to 400 million pixels
MAX_BYTES = 8_000_000_000  # of an npz, npy or mat file, unpacked
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the user's quota, a file size limit
Progress = Callable[[Sequence[Any]], Iterable[Any]]  # wraps a sequence, e.g. tqdm
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
SLOW = 0.1  # seconds; a slower digest is cached
SHARE = 20  # the cache lasts this many times as long as the digest took


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` once it is complete and on disk.

    Until then an older file stays as it is. Every writer has a unique temporary file: the last of
    several writers wins, and no locks are needed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:  # exclusive: it never follows a symbolic link
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise disk_full(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_full(path: Path, error: Exception) -> OSError:
    """Return the error for a file that could not be written because there was no space."""
    reason = getattr(error, "strerror", None) or error
    advice = "Free some disk space and run the same command again to resume"
    return OSError(errno.ENOSPC, f"{path}: could not be written ({reason}). {advice}")


def lock(file: IO, wait: bool = True) -> None:
    """Lock a file against other processes until it is closed.

    Without `wait`, raise BlockingIOError if another process holds the lock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        advice = "Choose another file system, or mount it with locks (Lustre: -o flock)"
        message = f"{file.name}: this file system has no locks ({os.strerror(error.errno)}). "
        raise OSError(error.errno, message + advice) from None


def writable(folder: Path) -> None:
    """Create a folder and raise PermissionError if it is read-only."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def refuse_links(path: Path) -> None:
    """Refuse a link or a pipe, at `path` or in the folder `path`: writing to it could change any
    file. In the folder of somebody else, it may point anywhere."""
    walk = os.walk(path)
    inside = (Path(top, name) for top, folders, files in walk for name in folders + files)
    for found in itertools.chain([path], inside):
        if found.is_symlink() or found.is_fifo():
            raise ValueError(f"{found} is a link or a pipe; expected a file or folder. Remove it.")


def outside(path: str) -> bool:
    """Return whether a path is not a relative path below its folder."""
    pure = PurePosixPath(path)
    return not path or "\0" in path or pure.is_absolute() or ".." in pure.parts


def locate(
    root: Path, paths: Sequence[str], where: Callable[[int], str], inside: bool = False
) -> list[Path]:
    """Return root / path for each path, checked to exist; `where(i)` names path i in errors.

    inside: refuse files that symbolic links place outside `root`. Every folder is listed once,
    which is faster than 190,000 single checks.
    """
    root = root.resolve() if inside else root
    files = [root / path for path in paths]
    entries = {
        folder / entry.name: entry
        for folder in filter(Path.is_dir, {file.parent for file in files})
        for entry in os.scandir(folder)
        if entry.is_file()
    }
    within = functools.cache(lambda path: path.resolve().is_relative_to(root))
    for index, file in enumerate(files):
        entry = entries.get(file)
        if entry is None:
            advice = f"Unpack the files below {root}, or remove the row from the CSV."
            raise FileNotFoundError(f"{where(index)}: no such file {file}. {advice}")
        if inside and not within(file if entry.is_symlink() else file.parent):
            link = f"{paths[index]!r} is a link that leaves the data folder {root}"
            raise ValueError(f"{where(index)}: {link}. Set root to the folder of the images.")
    return files


class FileState(NamedTuple):
    """Bytes and modification time in nanoseconds."""

    size: int
    time: int


_cache: dict[Hashable, tuple[float, str]] = {}  # {key: (expiry, digest)}


def manifest(files: Iterable[str], content: bool = False, key: Hashable = None) -> str:
    """Return a digest of files, which changes when a file changes or is missing.

    A file stands for its size and modification time, so 200,000 images take about a second. With
    `content` their bytes are read instead, which survives a copy that loses the times. key:
    identifies the list of files. A slow digest of the same key is cached for a while.
    """
    began = time.monotonic()
    expiry, known = _cache.get((key, content), (0.0, ""))
    if key is not None and began < expiry:
        return known
    digest = hashlib.sha256()
    for file in files:
        state = file_state(file)
        if state is None:
            digest.update(b"missing;")
        else:
            digest.update(b"%d %d;" % (state.size, crc(file, *state) if content else state.time))
    text, took = digest.hexdigest(), time.monotonic() - began
    if took > SLOW:
        _cache[key, content] = (time.monotonic() + SHARE * took, text)
    return text


def file_state(file: str | Path) -> FileState | None:
    """Return the state of a file, or None if there is no such file."""
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileState(found.st_size, found.st_mtime_ns)


@functools.cache
def crc(file: str | Path, size: int, time: int) -> int:
    """Return the CRC-32 of a file; size and time identify its version in the cache."""
    return zlib.crc32(Path(file).read_bytes())
