"""Run folders of other people: no link is followed on write, no limit raised, no number stale."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datasets.io import store
from datasets.io.files import MAX_PIXELS
from engine.evaluation.evaluate import finished_run
from engine.runs.folder import locked
from engine.runs.run import run
from engine.tables.reproduce import run_stages
from losses import GaussianMixture
from tests.engine.tiny import config

STAGE2 = ("imdb_wiki/bmc", "features=cached", "features.views=1")
RUN = "imdb_wiki/bmc/paper/*"


@pytest.fixture(scope="module")
def outputs(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    outputs = tmp_path_factory.mktemp("outputs")
    run(config(faces, outputs, *STAGE2))
    return outputs


def test_no_link_is_followed_on_write(faces: Path, outputs: Path, tmp_path: Path):
    """A command leaves alone what a link in place of one of its files or folders points to."""
    written = [path for folder in outputs.glob(RUN) for path in (folder, *folder.rglob("*"))]
    assert len(written) == 12
    for pattern in ("features/*", "features/*/*", "features/*/test/*"):
        written += outputs.glob(pattern)
    for number, path in enumerate(written):
        own = shutil.copytree(outputs, tmp_path / str(number) / "out")
        link = own / path.relative_to(outputs)
        mine = link.rename(own.parent / "mine")
        link.symlink_to(mine)
        before = {path: path.stat().st_mtime_ns for path in (mine, *mine.rglob("*"))}
        cached = path.is_relative_to(outputs / "features")
        cfg = config(faces, own, *STAGE2, "trainer.epochs=3" if cached else "rerun=true")
        with pytest.raises(ValueError, match=r"is a link or a pipe; .*Remove it"):
            run(cfg)
        assert {path: path.stat().st_mtime_ns for path in (mine, *mine.rglob("*"))} == before


def test_a_pipe_is_refused(tmp_path: Path):
    """Opening it would wait for ever."""
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(ValueError, match=r"lock is a link or a pipe"), locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.lmdb.partial", lambda folder: store.write(folder / "a.lmdb", [], "key", 16)),
        ("reproduce.log", lambda folder: run_stages([], folder / "reproduce.log")),
    ],
)
def test_other_files_follow_no_link(name: str, write: Callable[[Path], Any], tmp_path: Path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / name).symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match=rf"{name} is a link"):
        write(tmp_path)
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_mixture_follows_no_link(tmp_path: Path):
    (tmp_path / "mine").write_text("mine")
    for name in ("a.npz", "a.npz.part"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    GaussianMixture([1.0], [[0.0]], [[[1.0]]]).save(tmp_path / "a.npz")
    assert (tmp_path / "mine").read_text() == "mine"


def test_limits_are_those_of_the_reader(outputs: Path, tmp_path: Path):
    (folder,) = outputs.glob(RUN)
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    path.write_text(path.read_text().replace("max_pixels: 50000000", "max_pixels: 9000000000"))
    assert "9000000000" in path.read_text()
    for own in (MAX_PIXELS, 100):
        cfg, _, _ = finished_run(tmp_path / "run", trust=["tests"], max_pixels=own)
        assert cfg.dataset.max_pixels == own


@pytest.mark.parametrize(
    ("name", "part"), [("imdb_wiki.csv", "files"), ("faces/test0.jpg", "imag")]
)
def test_changed_data_is_reported(name: str, part: str, faces: Path, tmp_path: Path, capsys):
    data = shutil.copytree(faces, tmp_path / "data")
    folder = Path(run(config(data, tmp_path / "out"))["folder"])
    finished_run(folder, trust=["tests"])
    assert "changed" not in capsys.readouterr().err
    path = data / "imdb_wiki" / name
    old, new = (b"\n", b"\n0") if part == "files" else (b"\xff\xd9", b"\xff\xd9 ")
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    finished_run(folder, trust=["tests"])
    assert f"{folder}: {part}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_checkpoint_of_another_seed_is_refused(name: str, faces: Path, tmp_path: Path):
    one, other = (
        Path(run(config(faces, tmp_path, "imdb_wiki/vanilla", f"seed={s}"))["folder"])
        for s in (0, 1)
    )
    shutil.copy(other / "checkpoints" / f"{name}.pt", one / "checkpoints")
    with pytest.raises(ValueError, match=rf"{name}\.pt: a checkpoint of .*seed1, not of .*seed0"):
        finished_run(one, name, ["tests"])
    (one / "metrics.json").unlink()
    with pytest.raises(ValueError, match=rf"{name}\.pt: a checkpoint of .*seed1, not of .*seed0"):
        run(config(faces, tmp_path))
