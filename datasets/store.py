"""Packed store: all images of a dataset, resized and encoded, in one HDF5 file for slow disks.

    bytes    (B,)     uint8   the JPEGs, one after the other
    offsets  (N + 1,) int64   image i is bytes[offsets[i] : offsets[i + 1]]
    attributes: key (what the store was made from: the hash of the CSV) and size (pixels a side)

Writing is restartable and whole or not at all: images first go to a journal beside the store, from
which an interrupted run goes on; the finished journal becomes an HDF5 file under a temporary name,
which is synced and renamed. An image that already has the right size is kept byte for byte.
"""

import fcntl
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import cv2
import h5py
import numpy as np

from datasets import images
from datasets.files import whole

_RECORD = struct.Struct("<II")  # length and CRC-32 of the bytes that follow
_QUALITY = 95
Progress = Callable[[Sequence[Path]], Iterable[Path]]


class Store:
    """N encoded images, read by index. The file is opened on first use, once in each process."""

    def __init__(self, path: str | Path, key: str, size: int):
        self.path = Path(path)
        self._bytes: h5py.Dataset | None = None
        self._pid = -1
        if not self.path.is_file():
            raise FileNotFoundError(
                f"{self.path}: no such packed store. Make it with prepare_age.py pack={size}."
            )
        try:
            with h5py.File(self.path, "r") as file:
                found = (str(file.attrs["key"]), int(str(file.attrs["size"])))
                self._offsets = np.asarray(file["offsets"])
        except (OSError, KeyError) as error:
            raise ValueError(
                f"{self.path}: expected a packed store, got something else ({error}). Delete it "
                f"and make it again with prepare_age.py pack={size}."
            ) from None
        if found != (key, size):
            raise ValueError(
                f"{self.path}: expected a packed store of the CSV {key[:12]} at {size} px, got one "
                f"of {found[0][:12]} at {found[1]} px. Make it with prepare_age.py pack={size}."
            )

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        if self._bytes is None or self._pid != os.getpid():  # an HDF5 handle must not cross a fork
            packed = h5py.File(self.path, "r")["bytes"]
            assert isinstance(packed, h5py.Dataset)
            self._bytes, self._pid = packed, os.getpid()
        return self._bytes[self._offsets[index] : self._offsets[index + 1]].tobytes()

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_bytes": None, "_pid": -1}


def write(
    path: str | Path, files: Sequence[Path], key: str, size: int, progress: Progress = iter
) -> Store:
    """Pack N image files into `path`: an interrupted run goes on, a whole store is left alone.

    `progress` wraps the files still to do, e.g. `tqdm`.
    """
    path = Path(path)
    if path.is_file():
        try:
            return Store(path, key, size)
        except ValueError:
            pass  # of another CSV or size: replaced, once the new one is whole
    path.parent.mkdir(parents=True, exist_ok=True)
    journal_path = path.with_name(path.name + ".journal")
    header = json.dumps({"key": key, "size": size, "count": len(files)}).encode() + b"\n"
    with journal_path.open("a+b") as journal:
        _lock(journal)
        done = _rewind(journal, header)
        for file in progress(files[done:]):
            data = _encode(file, size)
            journal.write(_RECORD.pack(len(data), zlib.crc32(data)) + data)
        journal.seek(len(header))
        _convert(path, list(_lengths(journal)), journal, len(header), key, size)
        journal_path.unlink()
    return Store(path, key, size)


def _encode(file: Path, size: int) -> bytes:
    data = images.read_bytes(file)
    image = images.decode(data, size, file)  # also proves that the file is whole
    if images.jpeg_shape(data) == (size, size):
        return data
    quality = [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]
    return cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), quality)[1].tobytes()


def _lock(journal: BinaryIO) -> None:
    try:
        fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError(
            f"{journal.name}: another process is writing this packed store. Wait for it to end."
        ) from None


def _rewind(journal: BinaryIO, header: bytes) -> int:
    """Cut the journal after its last whole record; the number of records that stay."""
    journal.seek(0)
    if journal.read(len(header)) != header:
        journal.truncate(0)
        journal.write(header)
        return 0
    lengths = list(_lengths(journal))
    journal.truncate(len(header) + sum(lengths) + _RECORD.size * len(lengths))
    journal.seek(0, os.SEEK_END)
    return len(lengths)


def _lengths(journal: BinaryIO) -> Iterator[int]:
    """Lengths of the whole records from here on; ends at a torn one."""
    while len(head := journal.read(_RECORD.size)) == _RECORD.size:
        length, checksum = _RECORD.unpack(head)
        data = journal.read(length)
        if len(data) < length or zlib.crc32(data) != checksum:
            return
        yield length


def _convert(
    path: Path, lengths: list[int], journal: BinaryIO, start: int, key: str, size: int
) -> None:
    """Write the HDF5 file from the journal's records, whole or not at all."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    journal.seek(start)
    with whole(path) as binary, h5py.File(binary, "w") as file:
        file.attrs["key"], file.attrs["size"] = key, size
        file["offsets"] = offsets
        packed = file.create_dataset("bytes", shape=(int(offsets[-1]),), dtype=np.uint8)
        for begin, length in zip(offsets, lengths, strict=False):
            journal.seek(_RECORD.size, os.SEEK_CUR)
            packed[begin : begin + length] = np.frombuffer(journal.read(length), np.uint8)
