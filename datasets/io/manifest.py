"""What a dataset is made of, as one short text that changes when a file does.

By default a file is its size and the time of its last change, so that 200,000 images take about a
second; `content` reads them all instead, which survives a copy that forgets the times. The sums of
contents are kept for this process under size and time, so that a second look is as cheap.
"""

import hashlib
import os
import time
import zlib
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import NamedTuple

SLOW = 0.1  # seconds; what took longer is remembered for a while
SHARE = 20  # it is remembered this many times as long as it took, so it costs a twentieth


class Source(NamedTuple):
    """A file as it was found: bytes, nanoseconds, CRC-32 of its content (0: not read)."""

    size: int
    time: int
    crc: int = 0


_remembered: dict[Hashable, tuple[float, str]] = {}  # until when, what
_sums: dict[tuple[str, int, int], int] = {}


def manifest(files: Iterable[str], content: bool = False, key: Hashable = None) -> str:
    """A hash over size and time of every file, or over their contents; a missing one counts, too.

    key: what the files follow from; if looking takes long, a look at the same key soon after gives
    the same answer.
    """
    began = time.monotonic()
    until, known = _remembered.get((key, content), (0.0, ""))
    if key is not None and began < until:
        return known
    digest = hashlib.sha256()
    for file in files:
        found = look(file, content)
        if found is None:
            digest.update(b"missing;")
        elif content:
            digest.update(b"%d %d;" % (found.size, found.crc))
        else:
            digest.update(b"%d %d;" % (found.size, found.time))
    text, took = digest.hexdigest(), time.monotonic() - began
    if took > SLOW:
        _remembered[key, content] = (time.monotonic() + SHARE * took, text)
    return text


def look(file: str | Path, content: bool = False) -> Source | None:
    """A file as it is now; None where there is none."""
    try:
        state = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    source = Source(state.st_size, state.st_mtime_ns)
    if not content:
        return source
    version = (str(file), *source[:2])
    if version not in _sums:
        with open(file, "rb") as data:
            _sums[version] = zlib.crc32(data.read())
    return source._replace(crc=_sums[version])
