"""Packed store: the resized images of a dataset in one LMDB file, for slow disks.

    meta        JSON: format, key (digest of the CSV), size (pixels); once complete, digest
    image<i>    JPEG of image i; a JPEG that already has the right size is stored byte for byte
    record<i>   RECORD of image i

`write` fills <path>.partial, one transaction per BATCH images, and renames it when it is complete.
"""

import functools
import hashlib
import itertools
import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import lmdb
import numpy as np
from numpy.typing import NDArray

from datasets.io import images
from datasets.io.files import (
    MAX_PIXELS,
    Progress,
    crc,
    disk_full,
    file_state,
    lock,
    refuse_links,
    sync_folder,
)

FORMAT = "packed store 3"
# Size, time and CRC-32 of the source file; CRC-32 of the JPEG.
RECORD = np.dtype([("size", "<i8"), ("time", "<i8"), ("crc", "<u4"), ("jpeg_crc", "<u4")])
BATCH = 64
LARGEST = 1 << 40  # bytes of address space; the file is as large as its content
QUALITY = [cv2.IMWRITE_JPEG_QUALITY, 95]


class Store:
    """N encoded images, read by index; each process opens the file when it needs it."""

    def __init__(self, path: str | Path, key: str, size: int):
        self.path, self.size = Path(path), size
        self._advice = f"Pack again with scripts/prepare_age.py pack={size}."
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no such packed store. {self._advice}")
        self._inode = self.path.stat().st_ino
        try:
            with _reader(str(self.path), self._inode).begin() as transaction:
                meta = json.loads(transaction.get(b"meta") or b"{}")
                self.records = _records(transaction)
            self.digest = _digest(self.records)
            if (meta["format"], meta["digest"]) != (FORMAT, self.digest):
                raise ValueError("its digest does not match its content")
            found = str(meta["key"]), int(meta["size"])
        except Exception as error:  # a damaged file fails in many ways
            got = f"a damaged file or another format ({error!r}). {self._advice}"
            raise ValueError(f"{self.path}: expected a packed store, got {got}") from None
        if found != (key, size):
            expected = f"a packed store of the CSV {key[:12]} at {size} px"
            got = f"one of {found[0][:12]} at {found[1]} px. {self._advice}"
            raise ValueError(f"{self.path}: expected {expected}, got {got}")

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> bytes:
        with _reader(str(self.path), self._inode).begin() as transaction:
            data = transaction.get(b"image%08d" % index) or b""
        if zlib.crc32(data) != self.records["jpeg_crc"][index]:
            raise ValueError(f"{self.path}, image {index}: it is damaged. {self._advice}")
        return data

    def check_sources(self, files: Sequence[str | Path]) -> None:
        """Refuse source files that have changed since packing; they may be missing."""
        for file, (size, time, content, _) in zip(files, self.records.tolist(), strict=True):
            found = file_state(file)
            if found is None or found == (size, time):
                continue
            if found.size != size or crc(file, *found) != content:
                change = f"{file} has changed since it was packed"
                raise ValueError(f"{self.path}: {change}. {self._advice}")


def write(
    path: str | Path,
    files: Sequence[Path],
    key: str,
    size: int,
    progress: Progress = iter,
    log: Callable[[str], None] = print,
    max_pixels: int = MAX_PIXELS,
) -> Store:
    """Pack N image files into `path`. An interrupted run resumes; a complete store is kept.

    A store that is damaged, or made from another CSV, size or images, is replaced; `log` gets the
    reason. `progress` wraps the files still to do.
    """
    path = Path(path)
    if path.is_file():
        try:
            store = Store(path, key, size)
            store.check_sources(files)
            for index in range(len(store)):
                store[index]  # raises if the image is damaged
            return store
        except ValueError as error:
            log(f"Packing again. {str(error).split(' Pack again')[0]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    refuse_links(partial)
    with partial.open("ab") as file:
        try:
            lock(file, wait=False)
        except BlockingIOError:
            raise RuntimeError(
                f"{partial}: another process is writing this packed store. Wait for it to end."
            ) from None
        try:
            meta = {"format": FORMAT, "key": key, "size": size}
            _fill(partial, files, meta, progress, max_pixels)
        except lmdb.Error as error:
            raise disk_full(partial, error) from error
        partial.replace(path)
    sync_folder(path.parent)
    return Store(path, key, size)


def _fill(
    partial: Path, files: Sequence[Path], meta: dict[str, Any], progress: Progress, max_pixels: int
) -> None:
    """Pack the images that a partial store does not have yet, then complete its meta."""
    try:
        env = _environment(partial)
    except (lmdb.Error, ValueError):  # damaged
        os.truncate(partial, 0)
        env = _environment(partial)
    with env:
        done = _resume(env, files, json.dumps(meta).encode())
        rest = enumerate(progress(files[done:]), start=done)
        while batch := list(itertools.islice(rest, BATCH)):
            with env.begin(write=True) as transaction:
                for index, file in batch:
                    data, record = _packed(file, meta["size"], max_pixels)
                    transaction.put(b"image%08d" % index, data)
                    transaction.put(b"record%08d" % index, record)
        with env.begin(write=True) as transaction:
            meta = meta | {"digest": _digest(_records(transaction))}
            transaction.put(b"meta", json.dumps(meta).encode())


def _resume(env: lmdb.Environment, files: Sequence[Path], meta: bytes) -> int:
    """Return the number of images of a partial store; empty it if it is of others."""
    with env.begin(write=True) as transaction:
        records = _records(transaction)
        states = [file_state(file) for file in files[: len(records)]]
        if transaction.get(b"meta") == meta and records[["size", "time"]].tolist() == states:
            return len(records)
        transaction.drop(env.open_db(txn=transaction), delete=False)
        transaction.put(b"meta", meta)
    return 0


def _packed(file: Path, size: int, max_pixels: int) -> tuple[bytes, bytes]:
    """Return the JPEG of an image and its RECORD."""
    state, source = file_state(file), images.read_bytes(file)
    image = images.decode(source, size, file, max_pixels)  # checks the file, too
    data = source
    if images.header(source) != ((size, size), True):
        bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
        data = cv2.imencode(".jpg", bgr, QUALITY)[1].tobytes()
    record = len(source), state.time if state else 0, zlib.crc32(source), zlib.crc32(data)
    return data, np.array(record, RECORD).tobytes()


@functools.lru_cache(maxsize=8)
def _reader(path: str, inode: int) -> lmdb.Environment:
    """Return the environment of a store; LMDB allows one per file in a process.

    It may be used after a fork: without locks it is a read-only memory map.
    """
    return _environment(Path(path), readonly=True, readahead=False)


def _environment(path: Path, **options: Any) -> lmdb.Environment:
    env = lmdb.open(str(path), LARGEST, subdir=False, lock=False, **options)
    expected, found = (env.info()["last_pgno"] + 1) * env.stat()["psize"], path.stat().st_size
    if 0 < found < expected:  # reading beyond the end would kill the process
        env.close()
        raise ValueError(f"truncated: expected {expected:,} bytes, got {found:,}")
    return env


def _records(transaction: lmdb.Transaction) -> NDArray:
    """(N,) RECORD."""
    cursor = transaction.cursor()
    cursor.set_range(b"record")
    return np.frombuffer(b"".join(value for _, value in cursor), RECORD)


def _digest(records: NDArray) -> str:
    """Digest of sources and JPEGs; it ignores times, so packing the same images again keeps it."""
    columns = [records[name].tobytes() for name in ("size", "crc", "jpeg_crc")]
    return hashlib.sha256(b"".join(columns)).hexdigest()
