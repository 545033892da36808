"""Folders of generated datasets: written atomically, and once for the same settings."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np

STAMP = "settings.json"  # written last, so a folder that has it is complete


def generate(folder: str | Path, settings: dict, fill: Callable[[Path], None]) -> bool:
    """Fill a temporary folder, which then replaces `folder`.

    Returns False, without a change, if `folder` was generated with the same settings. A folder that
    was not generated is never touched.
    """
    folder = Path(folder)
    stamp = folder / STAMP
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    content = (json.dumps({"hash": digest, **settings}, indent=2) + "\n").encode()
    if folder.exists() and not stamp.is_file() and any(folder.iterdir()):
        raise FileExistsError(
            f"{folder}: expected a generated dataset or an empty folder, got a folder without "
            f"{STAMP}. Give another folder, or move this one away."
        )
    if stamp.is_file() and stamp.read_bytes() == content:
        return False
    _remove_orphans(folder)
    temporary = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    temporary.mkdir(parents=True)
    try:
        fill(temporary)
        (temporary / STAMP).write_bytes(content)
        if not stamp.is_file() or stamp.read_bytes() != content:  # no other process was faster
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def _remove_orphans(folder: Path) -> None:
    """Remove the temporary folders of killed processes."""
    for orphan in folder.parent.glob(f"{folder.name}.partial-*"):
        with suppress(PermissionError):
            try:
                os.kill(int(orphan.name.rpartition("-")[2]), 0)  # only checks for the process
            except ProcessLookupError:
                shutil.rmtree(orphan, ignore_errors=True)


def write_jpeg(path: Path, image: np.ndarray) -> None:
    """Write an (H, W, 3) uint8 RGB image."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    path.write_bytes(cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, 92])[1].tobytes())
