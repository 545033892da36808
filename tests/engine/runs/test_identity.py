"""Whatever can change a number changes the identity of a run; nothing else does."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from omegaconf import open_dict

from engine.runs import identity
from engine.runs.folder import brief
from engine.runs.run import run
from engine.training.task import Regression
from losses import BMC
from tests.engine.tiny import TinyNet, config, write_faces


def key(cfg) -> str:
    return identity.digest(identity.parts(cfg))


def test_settings(faces: Path, tmp_path: Path):
    base = key(config(faces, tmp_path, "imdb_wiki/bmc"))
    same = ("trainer.devices=2", "trainer.workers=3", "log.every=7", "resume=never", "rerun=true")
    for override in same:
        assert key(config(faces, tmp_path, "imdb_wiki/bmc", override)) == base
    other = ("seed=1", "loss.likelihood.sigma=9", "trainer.epochs=3")
    keys = [key(config(faces, tmp_path, "imdb_wiki/bmc", override)) for override in other]
    stage1 = identity.parts(config(faces, tmp_path, "imdb_wiki/bmc"), "weights of stage 1")
    assert len({base, *keys, identity.digest(stage1)}) == 5


def test_the_module_of_a_class_does_not_count():
    nodes = [{"_target_": name, "x": "a.b"} for name in ("losses.Bins.fit", "losses.bins.Bins.fit")]
    assert identity.digest(nodes[0]) != identity.digest(nodes[1])
    assert identity.digest(nodes[0], by_class=True) == identity.digest(nodes[1], by_class=True)
    other = {"_target_": "losses.Flat.fit", "x": "a.b"}
    assert identity.digest(nodes[0], by_class=True) != identity.digest(other, by_class=True)


def test_contents_survive_a_copy(tmp_path: Path):
    data = write_faces(tmp_path / "data")
    cfg = config(data, tmp_path, "imdb_wiki/vanilla", "images=content")
    before = identity.parts(cfg)
    for image in (data / "imdb_wiki" / "faces").iterdir():
        image.touch()
    assert identity.parts(cfg) == before
    shutil.copyfile(data / "imdb_wiki/faces/train0.jpg", data / "imdb_wiki/faces/train1.jpg")
    assert identity.parts(cfg)["images"] != before["images"]


def test_named_files_are_compared_by_content(faces: Path, tmp_path: Path):
    weights, arrays = tmp_path / "weights.pth", tmp_path / "arrays"
    cfg = config(faces, tmp_path)
    with open_dict(cfg):
        cfg.model.weights, cfg.model.folder = str(weights), str(arrays)
    arrays.mkdir()
    found = [identity.parts(cfg)["files"]]
    for path in (weights, arrays / "a.npz"):
        for text in ("one", "two"):
            path.write_text(text)
            found.append(identity.parts(cfg)["files"])
    assert len(set(found)) == 5


FILE = """
import math  # a comment


class Line:
    {doc}

    def f(self, x):
        {doc}
        return math.sqrt(x) * {scale}
"""


def test_code_counts_without_comments_and_docstrings(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(identity, "ROOT", tmp_path)

    def version(name: str, doc: str = "'''A.'''", scale: str = "1.0") -> str:
        shutil.rmtree(tmp_path / "own", ignore_errors=True)
        (tmp_path / "own").mkdir()
        text = FILE.replace("{doc}", doc).replace("{scale}", scale)
        (tmp_path / "own" / name).write_text(text)
        identity._sources.cache_clear()
        return identity.code(["own"], [])

    base = version("one.py")
    assert version("one.py", doc="'''Other.'''  # text") == base
    assert version("two.py") == base
    assert version("one.py", scale="2.0") != base
    identity._sources.cache_clear()


def test_code_of_an_allowed_package_counts(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for scale in ("1.0", "2.0"):
        (tmp_path / "mine.py").write_text(FILE.replace("{doc}", "'A'").replace("{scale}", scale))
        identity._sources.cache_clear()
        found.append(identity.code([], ["mine.Line", "torch.optim.Adam"]))
    del sys.modules["mine"]
    assert found[0] != found[1] != identity.code([], ["torch.optim.Adam"]) == identity.code([], [])


def test_another_checkpoint_to_resume_from_is_another_run(faces: Path, tmp_path: Path):
    other = run(config(faces, tmp_path / "other", "imdb_wiki/vanilla", "seed=5"))
    path = Path(other["folder"]) / "checkpoints" / "last.pt"
    clean = run(config(faces, tmp_path / "clean"))
    foreign = run(config(faces, tmp_path / "both", "imdb_wiki/vanilla", f"resume={path}"))
    plain = run(config(faces, tmp_path / "both"))
    assert plain["metrics"] == clean["metrics"] != foreign["metrics"]
    assert plain["folder"] != foreign["folder"]


@pytest.mark.parametrize("changed", ["code", "images", "stage 1"])
def test_a_change_reruns_and_logs_why(changed: str, tmp_path: Path, monkeypatch, capsys):
    data = write_faces(tmp_path / "data")
    faces = data / "imdb_wiki" / "faces"
    cfg = config(data, tmp_path, "imdb_wiki/bmc" if changed == "stage 1" else "imdb_wiki/vanilla")
    first = run(cfg)
    if changed == "code":
        monkeypatch.setattr(identity, "_sources", lambda path: ["changed"])
    elif changed == "images":
        for image in faces.glob("test*"):
            shutil.copyfile(faces / "train0.jpg", image)
    else:
        other = run(config(data, tmp_path / "x", "imdb_wiki/vanilla", "seed=7", "trainer.epochs=1"))
        (stage1,) = (tmp_path / "imdb_wiki" / "vanilla" / "paper").iterdir()
        for name in ("checkpoints/best.pt", "checkpoints/last.pt"):
            shutil.copyfile(Path(other["folder"]) / name, stage1 / name)
    capsys.readouterr()
    again = run(cfg)
    assert again["folder"] != first["folder"]
    expected = f"rerun, because {changed} changed since {Path(first['folder']).name}"
    assert expected in capsys.readouterr().err
    assert (again["metrics"] == first["metrics"]) == (changed == "code")


def test_a_diverged_run_is_remembered(faces: Path, tmp_path: Path):
    """A mean error of millions is no result."""
    cfg = config(faces, tmp_path, "imdb_wiki/vanilla", "optim.optimizer.lr=1e6")
    for _ in range(2):
        with pytest.raises(FloatingPointError, match=r"Lower\s+optim"):
            run(cfg)
    (log,) = tmp_path.rglob("train.log")
    assert "diverged" in log.read_text().splitlines()[-1]
    assert log.read_text().count(" diverged: ") == 1


def test_test_labels_beyond_those_of_training_are_plausible(faces: Path, tmp_path: Path):
    """An untrained network predicts about 0, which is far from every label that is left out."""
    left_out = ("protocol=interpolation", "protocol.first=0.2", "protocol.last=1.0")
    assert run(config(faces, tmp_path, "imdb_wiki/vanilla", *left_out, "trainer.epochs=1"))


@pytest.mark.parametrize(
    ("error", "diverged"), [(9.0, False), (115.0, False), (117.0, True), (203.6, True)]
)
def test_an_error_beyond_any_constant_guess_is_implausible(error: float, diverged: bool):
    """Ages of 1 to 116: no constant guess among them is off by more than 116 on average."""
    task = Regression(TinyNet(), BMC(1.0))
    found = task.implausible({"test/mae": error}, np.array([[1.0], [30.0], [116.0]]))
    assert (found is not None) == diverged


def test_an_empty_group_is_printed_as_a_dash():
    metrics = {"test/bmae": 1.0, "test/bmae_many": None, "test/bmae_medium": np.nan}
    shown = [("test/bmae", "1.000"), ("test/bmae_many", "-"), ("test/bmae_medium", "-")]
    assert brief(metrics, ["bmae", "bmae_many", "bmae_medium"]) == shown
