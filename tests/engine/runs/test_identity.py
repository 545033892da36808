"""Whatever can change a number changes the run; what cannot, does not."""

import re
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from omegaconf import open_dict

from engine.cli import targets
from engine.runs import code, identity
from engine.runs.run import run
from engine.training.task import Regression
from losses import BMC
from tests.engine.tiny import TinyNet, config, write_faces


def test_another_checkpoint_to_go_on_from_is_another_run(faces: Path, tmp_path: Path):
    other = run(config(faces, tmp_path / "other", "imdb_wiki/vanilla", "seed=5"))
    path = Path(other["folder"]) / "checkpoints" / "last.pt"
    clean = run(config(faces, tmp_path / "clean"))
    foreign = run(config(faces, tmp_path / "both", "imdb_wiki/vanilla", f"resume={path}"))
    plain = run(config(faces, tmp_path / "both"))
    assert plain["metrics"] == clean["metrics"] != foreign["metrics"]
    assert plain["folder"] != foreign["folder"]


def test_replaced_images_make_the_run_again_and_say_so(tmp_path: Path, capsys):
    data = write_faces(tmp_path / "data")
    cfg = config(data, tmp_path)
    first = run(cfg)
    for image in (data / "imdb_wiki" / "faces").glob("test*"):
        shutil.copyfile(data / "imdb_wiki" / "faces" / "train0.jpg", image)
    capsys.readouterr()
    again = run(cfg)
    assert again["metrics"] != first["metrics"]
    said = capsys.readouterr().err
    assert f"run again, as images changed since {Path(first['folder']).name}" in said


def test_contents_survive_a_copy(tmp_path: Path):
    data = write_faces(tmp_path / "data")
    cfg = config(data, tmp_path, "imdb_wiki/vanilla", "images=content")
    before = identity.parts(cfg)
    for image in (data / "imdb_wiki" / "faces").iterdir():
        image.touch()
    assert identity.parts(cfg) == before
    shutil.copyfile(data / "imdb_wiki/faces/train0.jpg", data / "imdb_wiki/faces/train1.jpg")
    assert identity.parts(cfg)["images"] != before["images"]


def test_retrained_stage_one_retrains_stage_two(faces: Path, tmp_path: Path, capsys):
    cfg = config(faces, tmp_path, "imdb_wiki/bmc")
    first = run(cfg)
    (stage1,) = (tmp_path / "imdb_wiki" / "vanilla" / "paper").iterdir()
    other = run(config(faces, tmp_path / "x", "imdb_wiki/vanilla", "seed=7", "trainer.epochs=1"))
    for name in ("best.pt", "last.pt"):
        shutil.copyfile(Path(other["folder"]) / "checkpoints" / name, stage1 / "checkpoints" / name)
    capsys.readouterr()
    again = run(cfg)
    assert again["folder"] != first["folder"]
    assert "run again, as stage 1 changed since" in capsys.readouterr().err


def test_named_weights_are_told_apart_by_content(faces: Path, tmp_path: Path):
    weights = tmp_path / "weights.pth"
    weights.write_bytes(b"one")
    cfg = config(faces, tmp_path)
    with open_dict(cfg):
        cfg.model.weights = str(weights)
    before = identity.parts(cfg)
    weights.write_bytes(b"two")
    assert identity.parts(cfg)["files"] != before["files"]


FILE = """
import math  # a comment
from losses import Flat


def f(x: int, scale: float = {scale}) -> float:
    \"\"\"{doc}\"\"\"
    if x < 0:
        raise ValueError("{text}")
    return math.sqrt(x) * scale
"""


def version(folder: Path, monkeypatch, name: str = "mine", **text: str) -> str:
    values = {"scale": "1.0", "doc": "A.", "text": "B."} | text
    content = FILE
    for key, value in values.items():
        content = content.replace("{" + key + "}", value)
    (folder / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(folder)
    for cached in [module for module in ("mine", "yours") if module in sys.modules]:
        del sys.modules[cached]
    code._read.cache_clear()
    found = code.version([f"{name}.f"])
    code._read.cache_clear()
    return found


def test_the_version_of_the_code_is_what_it_means(tmp_path: Path, monkeypatch):
    folders = [tmp_path / str(number) for number in range(5)]
    for folder in folders:
        folder.mkdir()
    base = version(folders[0], monkeypatch)
    assert version(folders[1], monkeypatch, doc="Another.", text="other words") == base
    assert version(folders[2], monkeypatch, name="yours") == base  # the file has another name
    assert version(folders[3], monkeypatch, scale="2.0") != base


def test_changed_code_makes_the_run_again_and_says_so(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """As if a constant of the loss were another one."""
    cfg = config(faces, tmp_path)
    first = run(cfg)
    definitions, imports = code._read("losses.balanced")
    changed = [[text.replace("1.0", "2.0") for text in definitions], imports]
    assert changed[0] != definitions
    read = code._read
    monkeypatch.setattr(code, "_read", lambda m: changed if m == "losses.balanced" else read(m))
    capsys.readouterr()
    again = run(cfg)
    assert again["folder"] != first["folder"]
    assert f"run again, as code changed since {Path(first['folder']).name}" in (
        capsys.readouterr().err
    )
    assert again["metrics"] == first["metrics"]  # nothing else has changed


def test_a_run_reaches_its_own_code_only():
    """Bodies do not matter to ages; what ages use does."""
    ages = [
        "datasets.ages.AgeDataset",
        "losses.BalancedLoss",
        "metrics.AgeMetrics",
        "engine.training.task.Dense",
    ]
    found = code.reached(ages)
    assert {"losses.balanced", "datasets.ages", "metrics.report", "engine.training.loop"} <= found
    assert not {name for name in found if "bodies" in name or "ihmr" in name or "tables" in name}


def test_where_a_class_lives_does_not_matter(monkeypatch):
    node = {"a": {"_target_": "losses.Bins.fit", "x": 1}, "b": {"_target_": "numpy.arange"}}
    assert identity._by_meaning(node) == {
        "a": {"_target_": "Bins.fit", "x": 1},
        "b": {"_target_": "numpy.arange"},
    }
    assert targets.calls(node) == ["losses.Bins.fit", "numpy.arange"]


@pytest.mark.parametrize("text", ["", '{"metrics": {"te', "null", "{}", "[]", '{"metrics": 3}'])
def test_a_damaged_metrics_file_is_repaired_as_the_message_says(text, faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path)
    first = run(cfg)
    path = Path(first["folder"]) / "metrics.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"metrics\.json: .*rerun=true.*or remove"):
        run(cfg)
    cfg.rerun = True
    assert run(cfg)["metrics"] == first["metrics"]
    path.write_text(text)
    cfg.rerun = False
    path.unlink()
    assert run(cfg)["metrics"] == first["metrics"]


def test_a_changed_number_does_not_match_its_checksum(faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path)
    path = Path(run(cfg)["folder"]) / "metrics.json"
    text = path.read_text()
    changed = re.sub(r'("test/bmae": )\d', r"\g<1>9", text)
    assert changed != text
    path.write_text(changed)
    with pytest.raises(ValueError, match=r"metrics\.json: it does not match its checksum"):
        run(cfg)


def test_a_changed_byte_in_a_checkpoint_is_noticed(faces: Path, tmp_path: Path):
    """torch itself reads it as if nothing had happened."""
    cfg = config(faces, tmp_path)
    first = run(cfg)
    folder = Path(first["folder"])
    (folder / "metrics.json").unlink()
    path = folder / "checkpoints" / "best.pt"
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = next(m for m in archive.infolist() if m.filename.endswith("/data/0"))
    data[member.header_offset + 200] ^= 64  # inside the first tensor: a header has 64 bytes or so
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"best\.pt: .*rerun=true|best\.pt: expected"):
        run(cfg)
    cfg.rerun = True
    assert run(cfg)["metrics"] == first["metrics"]


def test_the_best_checkpoint_is_gone(faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path)
    first = run(cfg)
    folder = Path(first["folder"])
    for name in ("metrics.json", "checkpoints/best.pt"):
        (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=r"best\.pt is missing.*rerun=true"):
        run(cfg)
    cfg.rerun = True
    assert run(cfg)["metrics"] == first["metrics"]


def test_a_run_that_diverged_says_so(faces: Path, tmp_path: Path):
    """A mean error of millions is no result."""
    cfg = config(faces, tmp_path, "imdb_wiki/vanilla", "optim.optimizer.lr=1e6")
    for _ in range(2):  # it is remembered, not run again
        with pytest.raises(FloatingPointError, match=r"Lower\s+optim"):
            run(cfg)
    (log,) = tmp_path.rglob("train.log")
    assert "diverged" in log.read_text().splitlines()[-1]
    assert log.read_text().count(" diverged: ") == 1


@pytest.mark.parametrize(
    ("error", "diverged"), [(9.0, False), (115.0, False), (117.0, True), (203.6, True)]
)
def test_an_error_beyond_any_guess_is_no_result(error: float, diverged: bool):
    """Ages of 1 to 116: no guess among them, nor zero, is off by more than 116 on average."""
    task = Regression(TinyNet(), BMC(1.0))
    found = task.implausible({"test/mae": error}, np.array([[1.0], [30.0], [116.0]]))
    assert (found is not None) == diverged


def test_an_empty_group_is_no_error(tmp_path: Path):
    """All ages are few-shot: many and medium have no samples."""
    from engine.training.log import brief

    metrics = {"test/bmae": 1.0, "test/bmae_many": None, "test/bmae_medium": np.nan}
    assert brief(metrics, ["bmae", "bmae_many", "bmae_medium"]) == [
        ("test/bmae", "1.000"),
        ("test/bmae_many", "-"),
        ("test/bmae_medium", "-"),
    ]
