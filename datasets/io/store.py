"""Packed store: all images of a dataset, resized and encoded, in one HDF5 file for slow disks.

    bytes    (B,)     uint8   the JPEGs, one after the other
    offsets  (N + 1,) int64   image i is bytes[offsets[i] : offsets[i + 1]]
    sums     (N,)     uint32  CRC-32 of each JPEG, compared whenever it is read
    sources  (N, 3)   int64   of the file that each was made from: size, time, CRC-32
    attributes: format, key (the hash of the CSV), size (pixels a side), digest (of all but bytes)

Writing is restartable and whole or not at all: images first go to a journal beside the store, from
which an interrupted run goes on; the finished journal becomes an HDF5 file under a temporary name,
which is synced and renamed. An image that already has the right size is kept byte for byte.
"""

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import h5py
import numpy as np

from datasets.io import hdf5, images
from datasets.io.files import atomic_write, lock, space_for
from datasets.io.manifest import Source, look

FORMAT = "packed store 2"
_RECORD = struct.Struct("<IIqqI")  # length and CRC-32 of the bytes that follow, and their source
_QUALITY = 95
Progress = Callable[[Sequence[Path]], Iterable[Path]]


class Store:
    """N encoded images, read by index. The file is opened on first use, once in each process."""

    def __init__(self, path: str | Path, key: str, size: int):
        self.path, self.size = Path(path), size
        self._bytes: h5py.Dataset | None = None
        self._pid = -1
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no such packed store. {self._advice}")
        try:
            with h5py.File(self.path, "r") as file:
                if str(file.attrs["format"]) != FORMAT:
                    raise KeyError("another format")
                found = (str(file.attrs["key"]), int(str(file.attrs["size"])))
                names = ("offsets", "sums", "sources")
                index = [np.asarray(hdf5.array(file, name, "iu")) for name in names]
                self.digest, held = str(file.attrs["digest"]), hdf5.array(file, "bytes", "u").shape
        except Exception as error:  # a damaged HDF5 file fails in many ways
            raise ValueError(
                f"{self.path}: expected a packed store, got a damaged one or something else "
                f"({type(error).__name__}: {error}). {self._advice}"
            ) from None
        self._offsets, self._sums, self.sources = index
        if self.digest != _digest(*index) or held != (int(self._offsets[-1]),):
            raise ValueError(f"{self.path}: its index is damaged. {self._advice}")
        if found != (key, size):
            raise ValueError(
                f"{self.path}: expected a packed store of the CSV {key[:12]} at {size} px, got one "
                f"of {found[0][:12]} at {found[1]} px. {self._advice}"
            )

    @property
    def _advice(self) -> str:
        return f"Make it with scripts/prepare_age.py pack={self.size}, which replaces it."

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        if self._bytes is None or self._pid != os.getpid():  # an HDF5 handle must not cross a fork
            packed = hdf5.array(h5py.File(self.path, "r"), "bytes", "u")
            self._bytes, self._pid = packed, os.getpid()
        data = self._bytes[self._offsets[index] : self._offsets[index + 1]].tobytes()
        if zlib.crc32(data) != self._sums[index]:
            raise ValueError(f"{self.path}, image {index}: it is damaged. {self._advice}")
        return data

    def check_sources(self, files: Sequence[str | Path]) -> None:
        """Refuse images that are not the packed ones; those that are not there do not matter."""
        for file, packed in zip(files, self.sources.tolist(), strict=True):
            found = look(file)
            if found is None or found[:2] == tuple(packed[:2]):
                continue
            if found.size != packed[0] or look(file, content=True) != (*found[:2], packed[2]):
                raise ValueError(
                    f"{self.path}: {file} is not the image that was packed; it has changed since. "
                    f"{self._advice}"
                )

    def check(self) -> None:
        """Read every image once; a damaged one is an error."""
        for index in range(len(self)):
            self[index]

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_bytes": None, "_pid": -1}


def write(
    path: str | Path,
    files: Sequence[Path],
    key: str,
    size: int,
    progress: Progress = iter,
    say: Callable[[str], None] = print,
    max_pixels: int = images.MAX_PIXELS,
) -> Store:
    """Pack N image files into `path`: an interrupted run goes on, a whole store is left alone.

    A store that is damaged, or of another CSV, size or other images, is replaced once the new one
    is whole; `say` is told why. `progress` wraps the files still to do, e.g. `tqdm`.
    """
    path = Path(path)
    journal_path = path.with_name(path.name + ".journal")
    if path.is_file():
        try:
            packed = Store(path, key, size)
            packed.check_sources(files)
            packed.check()
            journal_path.unlink(missing_ok=True)  # of a run that was killed at the very end
            return packed
        except ValueError as error:
            say(f"packing again: {str(error).split(' Make it with')[0]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"format": FORMAT, "key": key, "size": size, "count": len(files)})
    with space_for(journal_path), journal_path.open("a+b") as journal:
        _lock(journal)
        done = _rewind(journal, header.encode() + b"\n", files)
        for file in progress(files[done:]):
            data, source = _encode(file, size, max_pixels)
            journal.write(_RECORD.pack(len(data), zlib.crc32(data), *source) + data)
        journal.seek(len(header) + 1)
        records = [record for record, _ in _records(journal)]
        _convert(path, records, journal, len(header) + 1, {"key": key, "size": size})
        journal_path.unlink()
    return Store(path, key, size)


def _encode(file: Path, size: int, max_pixels: int) -> tuple[bytes, Source]:
    """The bytes to be packed, and the file that they come from."""
    source, data = look(file), images.read_bytes(file)
    assert source is not None
    image = images.decode(data, size, file, max_pixels)  # also proves that the file is whole
    source = source._replace(crc=zlib.crc32(data))
    if images.jpeg_shape(data) == (size, size):
        return data, source
    quality = [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]
    image = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".jpg", image, quality)[1].tobytes(), source


def _lock(journal: BinaryIO) -> None:
    try:
        lock(journal, wait=False)
    except BlockingIOError:
        raise RuntimeError(
            f"{journal.name}: another process is writing this packed store. Wait for it to end."
        ) from None


def _rewind(journal: BinaryIO, header: bytes, files: Sequence[Path]) -> int:
    """Cut the journal after its last whole record of an image as it is now; how many stay."""
    journal.seek(0)
    if journal.read(len(header)) != header:
        journal.truncate(0)
        journal.write(header)
        return 0
    done, end = 0, len(header)
    for record, length in _records(journal):
        found = look(files[done]) if done < len(files) else None
        if found is None or found[:2] != record[2:4]:
            break
        done, end = done + 1, end + _RECORD.size + length
    journal.truncate(end)
    journal.seek(0, os.SEEK_END)
    return done


def _records(journal: BinaryIO) -> Iterator[tuple[tuple[int, ...], int]]:
    """The heads and lengths of the whole records from here on; ends at a torn one."""
    while len(head := journal.read(_RECORD.size)) == _RECORD.size:
        record = _RECORD.unpack(head)
        data = journal.read(record[0])
        if len(data) < record[0] or zlib.crc32(data) != record[1]:
            return
        yield record, record[0]


def _convert(
    path: Path, records: list, journal: BinaryIO, start: int, attributes: dict[str, Any]
) -> None:
    """Write the HDF5 file from the journal's records."""
    table = np.array(records, np.int64).reshape(len(records), 5)
    offsets = np.concatenate([[0], np.cumsum(table[:, 0])]).astype(np.int64)
    index = {"offsets": offsets, "sums": table[:, 1].astype(np.uint32), "sources": table[:, 2:]}
    layout = {name: (array.shape, array.dtype) for name, array in index.items()}
    attributes |= {"format": FORMAT, "digest": _digest(*index.values())}
    with atomic_write(path) as file:
        offsets = hdf5.lay_out(
            file, {**layout, "bytes": ((int(offsets[-1]),), np.uint8)}, attributes
        )
        for name, array in index.items():
            file.seek(offsets[name])
            file.write(np.ascontiguousarray(array).tobytes())
        file.seek(offsets["bytes"])
        journal.seek(start)
        for record in records:
            journal.seek(_RECORD.size, os.SEEK_CUR)
            file.write(journal.read(record[0]))


def _digest(offsets: np.ndarray, sums: np.ndarray, sources: np.ndarray) -> str:
    """Of the index, without the times: it is the same for the same images packed again."""
    parts = offsets.astype("<i8"), sums.astype("<u4"), sources[:, [0, 2]].astype("<i8")
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
