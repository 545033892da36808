"""The dataset's items and labels, and every way in which a CSV can be wrong."""

import numpy as np
import pytest
import torch

from datasets.ages import AgeDataset, read_csv, write_csv


def build(root, split="train", **options):
    return AgeDataset(root / "faces.csv", root, split, 32, **options)


def test_items_and_labels(faces):
    dataset = build(faces)
    np.testing.assert_array_equal(dataset.labels, [[0.0], [30.0]])
    assert len(dataset) == 2
    item = dataset[1]
    assert item["input"].shape == (3, 32, 32)
    assert item["input"].dtype == torch.float32
    assert item["input"].abs().max() <= 1
    torch.testing.assert_close(item["target"], torch.tensor([30.0]))
    assert item["meta"] == {"index": 1}


@pytest.mark.parametrize(
    ("split", "augment", "varies"),
    [("train", None, True), ("test", None, False), ("train", False, False), ("test", True, True)],
)
def test_augmentation_is_for_training_and_repeats_with_the_seed(faces, split, augment, varies):
    dataset = build(faces, split, augment=augment)
    torch.manual_seed(1)
    first = [dataset[0]["input"] for _ in range(6)]
    assert any(not torch.equal(first[0], item) for item in first) == varies
    torch.manual_seed(1)
    assert all(torch.equal(item, dataset[0]["input"]) for item in first)


def test_written_csv_is_read_back(tmp_path):
    write_csv(tmp_path / "new/a.csv", [3, 70.5], ["x/1.jpg", "x, y.jpg"], ["val", "train"])
    rows = [(row.age, row.path, row.split) for row in read_csv(tmp_path / "new/a.csv")]
    assert rows == [(3.0, "x/1.jpg", "val"), (70.5, "x, y.jpg", "train")]
    write_csv(tmp_path / "new/a.csv", [4, 70.5], ["x/1.jpg", "x, y.jpg"], ["val", "train"])
    assert read_csv(tmp_path / "new/a.csv")[0].age == 4  # rows are cached by content
    with pytest.raises(ValueError, match="expected a path below"):
        write_csv(tmp_path / "b.csv", [3], ["../1.jpg"], ["val"])
    assert [file.name for file in tmp_path.iterdir()] == ["new"]  # nothing half-written


def test_absolute_paths_below_the_folder_and_other_columns(faces):
    rows = read_csv(faces / "faces.csv", faces)
    lines = [f"x,{row.split},{(faces / row.path).resolve()},{row.age}" for row in rows]
    (faces / "absolute.csv").write_text("\n".join(["camera,split,path,age", *lines]))
    dataset = AgeDataset(faces / "absolute.csv", faces, "train", 32, augment=False)
    torch.testing.assert_close(dataset[0]["input"], build(faces, augment=False)[0]["input"])
    labels = AgeDataset.labels_of("train", csv=faces / "absolute.csv", root=faces)
    np.testing.assert_array_equal(labels, dataset.labels)
    with pytest.raises(ValueError, match="expected a path below"):
        AgeDataset(faces / "absolute.csv", faces / "other", "train", 32)


GOOD = "age,path,split\n1,crop/0.jpg,train\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,path\n1,crop/0.jpg\n", "expected the columns age, path, split; got 'age, path'"),
        (
            "age,path,split\n1,\xe9\0,train\n".encode("latin1"),
            "another kind.*Save it as CSV in UTF-8",
        ),
        ("age;path;split\n1;crop/0.jpg;train\n", "got 'age;path;split'.*separated by commas"),
        ("age,path,split,age\n1,crop/0.jpg,train,2\n", "expected one column age, got several"),
        ("", "expected the columns age, path, split"),
        (GOOD + "2,crop/1.jpg\n", "line 3: expected split .*, got ''"),
        (GOOD + "2,crop/1.jpg,val,x\n", "line 3: expected 3 cells, got more"),
        (GOOD + "nan,crop/1.jpg,train\n", r"line 3: expected an age in 0\.\.200 years, got 'nan'"),
        (GOOD + "old,crop/1.jpg,train\n", "line 3: expected an age.*'old'"),
        (GOOD + "-1,crop/1.jpg,train\n", "line 3: expected an age.*'-1'"),
        (GOOD + "201,crop/1.jpg,train\n", "line 3: expected an age.*'201'"),
        (GOOD + "1,crop/1.jpg,dev\n", "line 3: expected split train or val or test, got 'dev'"),
        (GOOD + "1,../1.jpg,train\n", "line 3: expected a path below"),
        (GOOD + "1,crop/../../1.jpg,train\n", "line 3: expected a path below"),
        (GOOD + "1,/etc/hostname,train\n", "line 3: expected a path below"),
        (GOOD + "1,,train\n", "line 3: expected a path"),
        (GOOD + "1,crop/\0.jpg,train\n", "line 3: expected a path"),
        (GOOD.replace("train", "val"), r"expected rows with split 'train', got \{'val': 1\}"),
        ("age,path,split\n", "expected rows, got none"),
    ],
)
def test_bad_csv_is_named(faces, text, message):
    (faces / "faces.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        build(faces)
    assert str(faces / "faces.csv") in str(caught.value)


@pytest.mark.parametrize("path", ["crop/missing.jpg", "nowhere/0.jpg", "crop"])
def test_missing_files_are_named(faces, path):
    with pytest.raises(ValueError, match=r"Unknown split 'valid'; choose from train, val, test"):
        build(faces, "valid")
    with pytest.raises(FileNotFoundError, match=r"faces\.csv: no such CSV.*prepare_age"):
        build(faces / "crop")
    dataset = build(faces)
    (faces / "crop/3.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"crop/3\.jpg: no such image"):
        dataset[1]
    (faces / "faces.csv").write_text(f"{GOOD}1,{path},train\n")
    with pytest.raises(FileNotFoundError, match=rf"faces\.csv, line 3: no such file .*{path}"):
        build(faces)


def test_links_may_not_leave_the_folder(faces, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (faces / "crop/0.jpg").rename(outside / "0.jpg")
    (faces / "crop/0.jpg").symlink_to(faces / "crop/1.jpg")
    (outside / "root").symlink_to(faces)
    build(outside / "root")[0]  # links inside and a linked root are fine
    (faces / "crop/0.jpg").unlink()
    (faces / "crop/0.jpg").symlink_to(outside / "0.jpg")
    with pytest.raises(ValueError, match=r"faces\.csv, line 2: 'crop/0\.jpg' is a link"):
        build(faces)
    (faces / "linked").symlink_to(outside)
    (faces / "faces.csv").write_text("age,path,split\n1,linked/0.jpg,train\n")
    with pytest.raises(ValueError, match=r"'linked/0\.jpg' is a link that leaves"):
        build(faces)
