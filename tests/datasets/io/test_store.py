"""The packed store: the same images as the files, resumable, and clear errors."""

import os
import pickle
import resource
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from datasets.ages import AgeDataset, pack
from datasets.io import store
from datasets.io.files import lock
from tests import process
from tests.datasets.conftest import write_jpeg


def packed(faces, size=32, **options):
    return pack(faces / "faces.csv", faces, faces / "packed.lmdb", size, **options)


def build(faces, split, size=32, use_store=True):
    path = faces / "packed.lmdb" if use_store else None
    return AgeDataset(faces / "faces.csv", faces, split, size, augment=False, store=path)


def contents(made):
    return [made[index] for index in range(len(made))]


def test_store_equals_files(faces):
    """Encoding once more at quality 95 costs at most 2 grey levels of 255 on average."""
    assert len(packed(faces, 64)) == 6
    for split in ("train", "val", "test"):
        ours, files = build(faces, split, 64), build(faces, split, 64, use_store=False)
        np.testing.assert_array_equal(ours.labels, files.labels)
        for one, other in zip(ours, files, strict=True):
            assert (one["input"] - other["input"]).abs().mean() < 2 / 127.5


def test_workers_read_without_the_image_files(faces):
    """Also after the parent process has read from the store."""
    packed(faces)
    for file in (faces / "crop").iterdir():
        file.unlink()
    dataset = build(faces, "train")
    expected = dataset[0]["input"]
    loader = DataLoader(dataset, batch_size=2, num_workers=1)  # forked
    assert torch.equal(next(iter(loader))["input"][0], expected)
    assert torch.equal(pickle.loads(pickle.dumps(dataset))[0]["input"], expected)


def interrupt(files):
    yield from files[:5]
    raise KeyboardInterrupt


def test_interrupted_packing_resumes_and_two_at_once_are_refused(faces, monkeypatch):
    monkeypatch.setattr(store, "BATCH", 2)
    seen = []
    with pytest.raises(KeyboardInterrupt):
        packed(faces, progress=interrupt)
    with (faces / "packed.lmdb.partial").open("ab") as file:
        lock(file)
        with pytest.raises(RuntimeError, match="another process is writing"):
            packed(faces)
    resumed = contents(packed(faces, progress=lambda files: seen.extend(files) or files))
    assert [file.name for file in seen] == ["4.jpg", "5.jpg"]  # two batches were complete
    (faces / "packed.lmdb").unlink()
    assert contents(packed(faces)) == resumed
    assert sorted(file.name for file in faces.iterdir()) == ["crop", "faces.csv", "packed.lmdb"]


PARTIAL = {
    "cut": lambda faces: os.truncate(faces / "packed.lmdb.partial", 8192),
    "other bytes": lambda faces: (faces / "packed.lmdb.partial").write_bytes(b"x" * 10_000),
    "other images": lambda faces: write_jpeg(faces / "crop/0.jpg", 100, 80, seed=77),
    "other size": lambda faces: None,
}


@pytest.mark.parametrize("damage", PARTIAL)
def test_a_partial_store_that_does_not_fit_is_started_again(faces, damage, monkeypatch):
    monkeypatch.setattr(store, "BATCH", 1)
    with pytest.raises(KeyboardInterrupt):
        packed(faces, 48 if damage == "other size" else 32, progress=interrupt)
    PARTIAL[damage](faces)
    made = contents(packed(faces))
    (faces / "packed.lmdb").unlink()
    assert made == contents(packed(faces))


def test_images_of_the_right_size_are_stored_byte_for_byte(faces):
    for index in range(6):
        write_jpeg(faces / f"crop/{index}.jpg", 48, 48, seed=index, quality=60)
    assert packed(faces, 48)[4] == (faces / "crop/4.jpg").read_bytes()


def test_changed_images_are_packed_again_but_not_a_copy_without_the_times(faces):
    old = packed(faces)
    for file in (faces / "crop").iterdir():
        os.utime(file, (0, 0))
    build(faces, "train")
    assert packed(faces, log=pytest.fail).digest == old.digest
    write_jpeg(faces / "crop/0.jpg", 100, 80, seed=77)
    with pytest.raises(ValueError, match=r"crop/0\.jpg has changed since it was packed.*pack=32"):
        build(faces, "train")
    messages = []
    new = packed(faces, log=messages.append)
    assert (new[0] != old[0], new.digest != old.digest) == (True, True)
    assert "has changed" in messages[0]


def test_store_of_another_csv_or_size_is_refused_then_replaced(faces):
    packed(faces)
    with pytest.raises(ValueError, match=r"packed\.lmdb: expected .* at 64 px, got .* 32 px"):
        build(faces, "train", 64)
    text = (faces / "faces.csv").read_text()
    (faces / "faces.csv").write_text(text.replace("30,crop", "31,crop"))
    with pytest.raises(ValueError, match=r"packed\.lmdb: expected a packed store of the CSV"):
        build(faces, "train")
    packed(faces, 64)
    assert build(faces, "train", 64)[0]["input"].shape == (3, 64, 64)


def test_damaged_image_stops_the_packing_and_is_named(faces):
    (faces / "crop/2.jpg").write_bytes(b"not an image")
    with pytest.raises(ValueError, match=r"crop/2\.jpg: expected a complete image"):
        packed(faces)
    assert not (faces / "packed.lmdb").exists()


def replace_values(path: Path, start: bytes, change) -> None:
    with (
        lmdb.open(str(path), subdir=False, lock=False) as env,
        env.begin(write=True) as transaction,
    ):
        for key, value in list(transaction.cursor()):
            if key.startswith(start):
                transaction.put(key, change(value))


DAMAGE = {
    "missing": lambda path: path.unlink(),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "cut to its first pages": lambda path: os.truncate(path, 8192),
    "empty": lambda path: os.truncate(path, 0),
    "another format": lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 9000),
    "another LMDB file": lambda path: replace_values(path, b"meta", lambda value: b"{}"),
    "image": lambda path: replace_values(path, b"image", lambda value: value[:-1] + b"x"),
    "record": lambda path: replace_values(path, b"record", lambda value: b"\1" + value[1:]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_store_is_refused_then_packed_again(faces, damage):
    expected = contents(packed(faces))
    store._reader.cache_clear()
    DAMAGE[damage](faces / "packed.lmdb")
    advice = r"packed\.lmdb.*Pack again with scripts/prepare_age\.py pack=32"
    with pytest.raises((ValueError, FileNotFoundError), match=advice):
        build(faces, "train")[0]
    messages = []
    assert contents(packed(faces, log=messages.append)) == expected
    assert damage == "missing" or "Packing again" in messages[0]
    assert build(faces, "train")[0]["input"].shape == (3, 32, 32)


def pack_with_little_space(faces: Path, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        packed(faces)
    except OSError as error:
        print(error)


@pytest.mark.parametrize("limit", [3000, 9000, 12000])
def test_a_full_disk_is_an_error_that_names_the_file(faces, limit):
    done = process.call(pack_with_little_space, faces, limit)
    assert done.returncode == 0, done.stderr
    assert "packed.lmdb" in done.stdout
    assert "could not be written" in done.stdout
    assert not done.stderr
    assert not (faces / "packed.lmdb").exists()
    assert len(packed(faces)) == 6
