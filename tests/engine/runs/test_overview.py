"""Runs are listed with what differs, diffed, compared with intervals, and removed."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from engine.runs.run import composed, run
from scripts import runs
from tests.engine.tiny import config


@pytest.fixture(scope="module")
def outputs(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs of one row: two seeds, another learning rate, a diverged and an interrupted one."""
    outputs = tmp_path_factory.mktemp("outputs")
    row = (faces, outputs, "imdb_wiki/vanilla", "log.replicates=20")
    for own in ("optim.optimizer.lr=0.01", "seed=0", "seed=1", "seed=2"):
        folder = Path(run(config(*row, own))["folder"])
    (folder / "metrics.json").unlink()
    with pytest.raises(FloatingPointError):
        run(config(*row, "optim.optimizer.lr=1e30"))
    return outputs


@pytest.fixture
def printed(outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """Return the words of each line that the script prints, on a copy of the outputs."""
    own = shutil.copytree(outputs, tmp_path / "out")

    def call(*words: str) -> list[list[str]]:
        capsys.readouterr()
        runs.main(composed("runs", [f"outputs={own}", *words]))
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    return call


def test_list(printed, tmp_path: Path):
    head, *lines = printed("metrics=[mae]")
    assert head[:5] == ["run", "row", "dataset", "seed", "state"]
    assert len(lines) == 5
    for name, row, dataset, seed, *_ in lines:
        assert name.startswith(f"imdb_wiki/vanilla/paper/seed{seed}-imdb_wiki-")
        assert (row, dataset) == ("Vanilla", "imdb_wiki")
    assert sorted(line[4] for line in lines) == ["diverged", *["finished"] * 3, "unfinished"]
    assert sum(line[5:7] == ["mae", "-"] for line in lines) == 2
    rates = {f"optim.optimizer.lr={rate}" for rate in ("0.01", "0.001", "1e+30")}
    assert {line[-1] for line in lines} == rates
    (lock,) = (tmp_path / "out").rglob("seed2-*/lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert printed("name=seed2")[1][4] == "running"
    lock.unlink()
    os.mkfifo(lock)
    assert printed("name=seed2")[1][4] == "unfinished"


def test_diff_and_compare(printed, tmp_path: Path):
    (faster,) = [line[0] for line in printed() if line[-1].endswith("=0.01")]
    (plain,) = [line[0] for line in printed() if line[3] == "0" and line[-1].endswith("=0.001")]
    (line,) = printed(f"diff=[{plain},{faster}]")
    assert line == ["optim.optimizer.lr", "0.001", "0.01"]
    _, *lines = printed(f"compare=[{plain},{faster}]", "metrics=[bmae,mae]")
    assert [line[0] for line in lines] == ["bmae", "mae"]
    for line in lines:  # one seed: the interval over images only
        low, high = float(line[3]), float(line[5])
        assert line[2] == "-"
        assert low <= high
        assert line[-1] == "open"
    both = printed("compare=[-imdb_wiki-,seed1]")
    assert [line[0] for line in both[1:]] == ["bmae", "bmae_few", "mae"]
    with pytest.raises(ValueError, match="vanilla: expected one run, but these"):
        printed("diff=[vanilla,seed1]")
    with pytest.raises(ValueError, match="nope: no finished run"):
        printed("compare=[vanilla,nope]")


def test_remove(printed, tmp_path: Path):
    removed = printed("remove=[diverged,unfinished]")
    assert {line[-1] for line in removed} == {"diverged", "unfinished"}
    assert [line[4] for line in printed()[1:]] == ["finished"] * 3
    assert len(list((tmp_path / "out").rglob("config.yaml"))) == 3


@pytest.mark.parametrize(("file", "text"), [("metrics.json", "{}"), ("config.yaml", ": [")])
def test_a_damaged_run_does_not_hide_the_others(printed, tmp_path: Path, file: str, text: str):
    (folder,) = (tmp_path / "out").rglob("seed1-*")
    (folder / file).write_text(text)
    assert "damaged" in [line[4] for line in printed()[1:]]
    assert len(printed()) == 6
    assert len(printed("remove=[damaged]")) == 1
    assert not folder.exists()


def test_what_cannot_be_compared_is_said(printed, tmp_path: Path):
    with pytest.raises(ValueError, match="no seed in common"):
        printed("compare=[seed0,seed1]")
    with pytest.raises(ValueError, match="no test metric 'foo'"):
        printed("compare=[seed1,seed1]", "metrics=[foo]")
