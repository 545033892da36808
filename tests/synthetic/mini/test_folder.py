"""Folders of generated datasets: atomic, written once for the same settings, never another's."""

import subprocess
import sys
from pathlib import Path

import pytest

from synthetic.mini.faces import write_faces

SMALL = {"images": 60, "size": 32, "cap": 2, "seed": 3}


def contents(folder: Path) -> dict:
    return {f.relative_to(folder): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_same_settings_give_the_same_bytes_once(tmp_path: Path):
    assert write_faces(tmp_path / "a", **SMALL)
    assert write_faces(tmp_path / "b", **SMALL)
    first = contents(tmp_path / "a")
    assert first == contents(tmp_path / "b")
    assert not write_faces(tmp_path / "a", **SMALL)
    assert write_faces(tmp_path / "a", **SMALL | {"seed": 4})
    assert first != contents(tmp_path / "a")


def test_an_interruption_keeps_the_old_folder(tmp_path: Path):
    def interrupt(paths):
        yield from paths[:5]
        raise KeyboardInterrupt

    write_faces(tmp_path / "mini", **SMALL)
    before = contents(tmp_path / "mini")
    with pytest.raises(KeyboardInterrupt):
        write_faces(tmp_path / "mini", **SMALL | {"seed": 4}, progress=interrupt)
    assert contents(tmp_path / "mini") == before
    assert [file.name for file in tmp_path.iterdir()] == ["mini"]


def test_temporary_folders_of_killed_processes_are_removed(tmp_path: Path):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    (tmp_path / f"mini.partial-{done.pid}/imdb_crop").mkdir(parents=True)
    write_faces(tmp_path / "mini", **SMALL)
    assert [file.name for file in tmp_path.iterdir()] == ["mini"]


def test_a_folder_that_was_not_generated_is_never_touched(tmp_path: Path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"without settings\.json"):
        write_faces(tmp_path, **SMALL)
    assert (tmp_path / "precious.txt").read_text() == "mine"
