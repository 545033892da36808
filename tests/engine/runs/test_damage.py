"""Damaged and missing files of a run: they are noticed, and the advice of the error works.

Damaged images, CSVs, packed stores and cached features: tests/datasets and tests/engine/features.
"""

import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.runs.run import run
from tests.engine.tiny import config

Damage = Callable[[Path], object]


def part(share: float) -> Damage:
    def cut(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(share * len(data))])

    return cut


def other_number(path: Path) -> None:
    text = re.sub(r'("test/bmae": )\d', r"\g<1>9", path.read_text())
    assert text != path.read_text()
    path.write_text(text)


def other_byte(path: Path) -> None:
    """torch itself reads a changed byte as if nothing had happened."""
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = next(m for m in archive.infolist() if m.filename.endswith("/data/0"))
    data[member.header_offset + 200] ^= 64  # inside the first tensor: a header has 64 bytes or so
    path.write_bytes(data)


TEXTS = ("", '{"metrics": {"te', "null", "{}", "[]", '{"metrics": 3}')
REFUSED: list[tuple[str, Damage]] = [
    *(("metrics.json", lambda path, text=text: path.write_text(text)) for text in TEXTS),
    ("metrics.json", other_number),
    *((name, d) for name in ("best.pt", "last.pt") for d in (part(0), part(0.3), part(0.9))),
    *((name, other_byte) for name in ("best.pt", "last.pt")),
    ("best.pt", Path.unlink),
]
RESUMED = ("metrics.json", "last.pt", "config.yaml", "identity.json", "train.log", "lock")


@pytest.fixture(scope="module")
def finished(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    outputs = tmp_path_factory.mktemp("outputs")
    run(config(faces, outputs))
    return outputs


@pytest.mark.parametrize(("name", "damage"), [*REFUSED, *((name, Path.unlink) for name in RESUMED)])
def test_a_damaged_file(name: str, damage: Damage, finished: Path, faces: Path, tmp_path: Path):
    """The command resumes to the same metrics, or advises rerun=true, which gives them."""
    outputs = shutil.copytree(finished, tmp_path / "out")
    cfg = config(faces, outputs)
    before = run(cfg)["metrics"]
    (path,) = outputs.rglob(name)
    damage(path)
    if name != "metrics.json":  # a finished run reads no other file
        (metrics,) = outputs.rglob("metrics.json")
        metrics.unlink()
    if (name, damage) in REFUSED:
        with pytest.raises((ValueError, FileNotFoundError), match=rf"{name}\b.*rerun=true"):
            run(cfg)
        cfg.rerun = True
    assert run(cfg)["metrics"] == before
