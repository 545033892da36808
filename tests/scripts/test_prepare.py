"""The prepare scripts through their configs: CSV, report, identical images, packed store."""

import shutil

import pytest

from datasets.ages import AgeDataset, read_csv
from datasets.io.nyud2_frames import MatFrames
from datasets.nyud2 import DepthDataset
from engine.benchmarks.prepare import ages, depth, generate
from engine.runs.run import composed
from tests.datasets.conftest import write_jpeg
from tests.datasets.test_nyud2 import write_mat


@pytest.fixture
def utkface(tmp_path):
    """Nine people of 20 and nine of 70, one of the young and one of the old with the same bytes."""
    for index in range(18):
        age = 20 if index < 9 else 70
        write_jpeg(tmp_path / f"UTKFace/{age}_0_0_{index:02d}.jpg", 40, 40, seed=index)
    shutil.copy(tmp_path / "UTKFace/20_0_0_00.jpg", tmp_path / "UTKFace/70_0_0_09.jpg")
    return tmp_path


def prepare(root, *overrides):
    ages(composed("prepare_age", ["source=utkface", f"root={root}", *overrides]))
    return read_csv(root / "utkface.csv")


def test_csv_split_and_report(utkface, capsys):
    rows = prepare(utkface, "cap=2")
    assert [row.split for row in rows if row.age == 20].count("val") == 2
    assert len(rows) == 18
    out = capsys.readouterr().out
    assert "train 10, val 4, test 4 images" in out
    assert "many 0, medium 0, few 2 shot ages" in out
    assert "2 images are identical to others, in 1 groups" in out
    assert "1 have more than one age" in out
    listed = (utkface / "utkface_identical.csv").read_text().splitlines()
    assert listed[0] == "group,age,path,split"
    assert len(listed) == 3


def test_identical_images_on_one_side(utkface, capsys):
    rows = prepare(utkface, "cap=3", "identical_on_one_side=true")
    twins = {row.split for row in rows if row.path[-6:] in ("00.jpg", "09.jpg")}
    assert twins == {"train"}
    assert "0 groups are in more than one split" in capsys.readouterr().out


def test_csv_that_is_there_stays_and_is_packed(utkface):
    text = "age,path,split\n20,UTKFace/20_0_0_00.jpg,train\n"
    (utkface / "utkface.csv").write_text(text)
    assert len(prepare(utkface, "pack=32")) == 1
    assert (utkface / "utkface.csv").read_text() == text
    packed = utkface / "utkface_32.lmdb"
    dataset = AgeDataset(utkface / "utkface.csv", utkface, "train", 32, store=packed)
    assert dataset[0]["input"].shape == (3, 32, 32)
    assert len(prepare(utkface, "overwrite=true")) == 18


def test_missing_images_are_an_error_or_left_out(utkface):
    (utkface / "labels.csv").write_text("age,path\n1,UTKFace/20_0_0_01.jpg\n2,gone.jpg\n")
    with pytest.raises(FileNotFoundError, match=r"gone\.jpg"):
        prepare(utkface)
    assert not (utkface / "utkface.csv").exists()
    assert [row.age for row in prepare(utkface, "drop_missing=true")] == [1]


@pytest.mark.parametrize(("source", "cap"), [("imdb_wiki", 150), ("agedb", 30), ("utkface", 50)])
def test_cap_follows_the_source(source, cap):
    assert composed("prepare_age", [f"source={source}", "root=x"]).cap == cap


def prepare_csv(root, text, *overrides):
    (root / "labels.csv").write_text(text)
    files = [f"csv={root / 'labels.csv'}", f"root={root}", "name=mine"]
    ages(composed("prepare_age", ["source=csv", *files, *overrides]))
    return read_csv(root / "mine.csv")


def test_a_csv_without_splits_gets_the_balanced_split(utkface):
    """Other columns are ignored; absolute paths below root become relative."""
    paths = sorted((utkface / "UTKFace").iterdir())
    lines = [f"x,{file.name[:2]},{file}" for file in paths]
    rows = prepare_csv(utkface, "\n".join(["sex,age,path", *lines]), "cap=2")
    assert [row.path for row in rows] == [f"UTKFace/{file.name}" for file in paths]
    reference = prepare(utkface, "cap=2")
    assert [row.split for row in rows] == [row.split for row in reference]
    assert sorted(row.split for row in rows)[:8] == ["test"] * 4 + ["train"] * 4


def test_a_csv_with_splits_keeps_them(utkface, capsys):
    lines = ["split,path,age", "train,UTKFace/20_0_0_01.jpg,20", "val,gone.jpg,7"]
    rows = prepare_csv(utkface, "\n".join(lines), "drop_missing=true", "pack=32")
    assert [row[1:] for row in rows] == [(20.0, "UTKFace/20_0_0_01.jpg", "train")]
    assert (utkface / "mine_32.lmdb").is_file()
    twins = ["split,path,age", "train,UTKFace/20_0_0_00.jpg,20", "test,UTKFace/70_0_0_09.jpg,70"]
    prepare_csv(utkface, "\n".join(twins), "overwrite=true")
    assert "1 groups are in more than one split, 1 have more than" in capsys.readouterr().out
    rows = prepare_csv(utkface, "\n".join(twins), "overwrite=true", "identical_on_one_side=true")
    assert {row.split for row in rows} == {"train"}


def test_a_bad_csv_is_named_and_the_input_is_not_overwritten(tmp_path):
    with pytest.raises(ValueError, match=r"labels\.csv.*expected the columns age, path; got 'age'"):
        prepare_csv(tmp_path, "age\n3\n")
    assert not (tmp_path / "mine.csv").exists()
    with pytest.raises(ValueError, match="source=csv needs csv=<a CSV"):
        prepare_csv(tmp_path, "age,path\n3,a.jpg\n", "name=labels", "overwrite=true")


def test_mini_is_drawn_from_its_config(tmp_path, capsys):
    faces = [f"folder={tmp_path / 'mini'}", "images=40", "size=16"]
    generate(composed("prepare_mini", ["draw=[faces]", *faces]))
    rooms = [f"rooms.folder={tmp_path / 'rooms'}", "rooms.train=4", "rooms.test=2"]
    generate(composed("prepare_mini", ["draw=[faces,rooms]", *faces, *rooms]))
    said = capsys.readouterr().out
    assert f"{tmp_path / 'mini'}: already there" in said
    assert f"{tmp_path / 'rooms'}: generated" in said
    assert len(read_csv(tmp_path / "mini/imdb_wiki.csv")) == 40


@pytest.mark.parametrize("lossless", [False, True])
def test_nyud2_from_the_labelled_mat(tmp_path, capsys, lossless):
    """Files, CSVs, histogram and mask; what is there stays, what is missing is made."""
    mat, splits = write_mat(tmp_path, frames=3)
    root = tmp_path / "nyud2"
    cfg = composed("prepare_nyud2", [f"root={root}", f"mat={mat}", f"splits={splits}"])
    cfg.lossless = lossless
    depth(cfg)
    train, test = (DepthDataset(root, split, (28, 38)) for split in ("train", "test"))
    assert (len(train), len(test)) == (2, 1)
    image, metres = MatFrames(mat, splits, "test")[0]
    error = abs(metres - test.frames.depth(0)).max()
    assert error == 0 if lossless else error <= 0.0005 + 1e-6  # whole millimetres
    assert (test.frames[0].image == image).all() == lossless
    _, metres = MatFrames(mat, splits, "train")[1]
    assert abs(train.frames.depth(1) - metres).max() < (1e-9 if lossless else 0.02)
    ending = ".tiff" if lossless else ".png"
    before = (root / f"nyu2_train/0000{ending}").stat().st_mtime_ns
    (root / f"nyu2_train/0002{ending}").unlink()
    capsys.readouterr()
    depth(cfg)
    assert capsys.readouterr().out.count("exists and is kept") == 2
    assert (root / f"nyu2_train/0002{ending}").is_file()
    assert (root / f"nyu2_train/0000{ending}").stat().st_mtime_ns == before
