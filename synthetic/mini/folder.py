"""A generated dataset's folder: written whole or not at all, and once for the same settings."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[Iterable], Iterable]  # wraps a loop, e.g. tqdm
_STAMP = "settings.json"  # the last file written; its presence means that the folder is whole


@contextmanager
def whole_folder(folder: str | Path, settings: dict) -> Iterator[Path | None]:
    """A temporary folder to fill, renamed to `folder` in the end; None if there is no work.

    A generated folder with other settings is replaced, once the new one is whole; a folder that was
    not generated is never touched.
    """
    folder = Path(folder)
    stamp = {"hash": settings_hash(settings), **settings}
    if folder.exists():
        if not (folder / _STAMP).is_file() and any(folder.iterdir()):
            raise FileExistsError(
                f"{folder}: expected a generated dataset or nothing, got a folder without "
                f"{_STAMP}. Give another folder, or move this one away."
            )
        if _read_hash(folder) == stamp["hash"]:
            yield None
            return
    _remove_orphans(folder)
    temporary = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        (temporary / _STAMP).write_text(json.dumps(stamp, indent=2) + "\n")
        if _read_hash(folder) != stamp["hash"]:  # else another process was faster
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_orphans(folder: Path) -> None:
    """Remove what killed processes have left beside `folder`."""
    for orphan in folder.parent.glob(f"{folder.name}.partial-*"):
        pid = int(orphan.name.rpartition("-")[2])
        try:
            os.kill(pid, 0)  # signal 0 only asks whether the process is there
        except ProcessLookupError:
            shutil.rmtree(orphan, ignore_errors=True)
        except PermissionError:
            continue


def settings_hash(settings: dict) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _read_hash(folder: Path) -> str | None:
    try:
        return json.loads((folder / _STAMP).read_text()).get("hash")
    except (OSError, ValueError):
        return None
