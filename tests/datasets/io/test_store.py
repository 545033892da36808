"""The packed store: the same pictures as the files, restartable, whole or not at all."""

import copy
import os
import resource
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from datasets.ages import AgeDataset, csv_key, pack
from datasets.io import store
from tests import process
from tests.datasets.conftest import write_jpeg


def packed(faces, size=32, **options):
    return pack(faces / "faces.csv", faces, faces / "packed.h5", size, **options)


def build(faces, split, size=32, use_store=True):
    path = faces / "packed.h5" if use_store else None
    return AgeDataset(faces / "faces.csv", faces, split, size, augment=False, store=path)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_store_equals_files(faces, split):
    """Encoding once more at quality 95 costs at most 2 grey levels of 255 on average."""
    assert len(packed(faces, 64)) == 6
    ours, files = build(faces, split, 64), build(faces, split, 64, use_store=False)
    np.testing.assert_array_equal(ours.labels, files.labels)
    for index in range(len(files)):
        difference = ours[index]["input"] - files[index]["input"]
        assert difference.abs().mean() < 2 / 127.5


def test_images_of_the_right_size_are_kept_byte_for_byte(faces):
    for index in range(6):
        write_jpeg(faces / f"crop/{index}.jpg", 48, 48, seed=index, quality=60)
    result = packed(faces, 48)
    assert result[4] == (faces / "crop/4.jpg").read_bytes()
    for index in range(2):
        expected = build(faces, "val", 48, use_store=False)[index]["input"]
        assert torch.equal(build(faces, "val", 48)[index]["input"], expected)


def test_files_are_not_needed_once_packed(faces):
    packed(faces)
    for file in (faces / "crop").iterdir():
        file.unlink()
    loader = DataLoader(build(faces, "train"), batch_size=2, num_workers=1)
    assert next(iter(loader))["input"].shape == (2, 3, 32, 32)


def test_handle_is_opened_lazily_and_not_sent_to_workers(faces):
    result = packed(faces)
    assert result._bytes is None
    first = result[0]
    again = copy.deepcopy(result)  # as a worker that is not forked gets it
    assert again._bytes is None
    assert again[0] == first


def test_interrupted_writing_goes_on(faces):
    def stop_after(count):
        def progress(files):
            for index, file in enumerate(files):
                if index == count:
                    raise KeyboardInterrupt
                yield file

        return progress

    seen = []

    def watch(files):
        seen.extend(files)
        return files

    with pytest.raises(KeyboardInterrupt):
        packed(faces, progress=stop_after(4))
    assert not (faces / "packed.h5").exists()
    packed(faces, progress=watch)
    assert [file.name for file in seen] == ["4.jpg", "5.jpg"]
    whole = [
        store.Store(faces / "packed.h5", csv_key(faces / "faces.csv"), 32)[i] for i in range(6)
    ]
    (faces / "packed.h5").unlink()
    fresh = packed(faces)
    assert whole == [fresh[i] for i in range(6)]
    assert sorted(file.name for file in faces.iterdir()) == ["crop", "faces.csv", "packed.h5"]


@pytest.mark.parametrize("cut", [1, 9, 200])
def test_torn_record_is_written_again(faces, cut):
    expected = packed(faces)
    expected = [expected[i] for i in range(6)]
    (faces / "packed.h5").unlink()

    def stop(files):
        yield from files[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packed(faces, progress=stop)
    journal = faces / "packed.h5.journal"
    journal.write_bytes(journal.read_bytes()[:-cut])
    result = packed(faces)
    assert [result[i] for i in range(6)] == expected


def pack_slowly(faces: Path) -> None:
    def slow(files):
        for number, file in enumerate(files):
            if number == 2:
                (faces / "third").touch()
            yield file
            time.sleep(0.05)

    packed(faces, progress=slow)


def test_killed_writer_leaves_nothing_half_done(faces):
    """kill -9 while packing, then pack again: the store equals one written without a break."""
    writer = process.start(pack_slowly, faces)
    while not (faces / "third").exists():
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="another process is writing"):
        packed(faces)
    writer.kill()
    writer.join()
    assert not (faces / "packed.h5").exists()
    packed(faces)
    os.rename(faces / "packed.h5", faces / "first.h5")
    result = store.Store(faces / "first.h5", csv_key(faces / "faces.csv"), 32)
    fresh = packed(faces)
    assert [result[i] for i in range(6)] == [fresh[i] for i in range(6)]


def test_whole_store_is_not_written_twice(faces):
    packed(faces)
    before = (faces / "packed.h5").stat().st_mtime_ns
    time.sleep(0.01)
    packed(faces)
    assert (faces / "packed.h5").stat().st_mtime_ns == before


def test_store_of_another_csv_or_size_is_refused_then_replaced(faces):
    packed(faces)
    with pytest.raises(ValueError, match=r"packed\.h5: expected .* at 64 px, got one of .* 32 px"):
        build(faces, "train", 64)
    text = (faces / "faces.csv").read_text()
    (faces / "faces.csv").write_text(text.replace("30,crop", "31,crop"))
    with pytest.raises(ValueError, match=r"packed\.h5: expected a packed store of the CSV"):
        build(faces, "train")
    packed(faces, 64)
    assert build(faces, "train", 64)[0]["input"].shape == (3, 64, 64)


def test_missing_or_damaged_store_is_named(faces):
    with pytest.raises(FileNotFoundError, match=r"packed\.h5: no such packed store.*pack=32"):
        build(faces, "train")
    packed(faces)
    data = (faces / "packed.h5").read_bytes()
    (faces / "packed.h5").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"packed\.h5: expected a packed store.*pack=32"):
        build(faces, "train")


def test_damaged_image_stops_the_packing_and_is_named(faces):
    (faces / "crop/2.jpg").write_bytes(b"not an image")
    with pytest.raises(ValueError, match=r"crop/2\.jpg: expected a whole image"):
        packed(faces)
    assert not (faces / "packed.h5").exists()


@pytest.mark.parametrize("damage", ["cut", "image", "index", "older"])
def test_a_damaged_store_is_made_again_as_the_message_says(faces, damage):
    expected = [packed(faces)[index] for index in range(6)]
    path = faces / "packed.h5"
    data = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        places = {name: file[name].id.get_offset() for name in ("bytes", "sources")}
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "older":
        data = bytearray(data.replace(store.FORMAT.encode(), b"packed store 1"))
    else:
        at = places["bytes" if damage == "image" else "sources"]
        data[at : at + 200 if damage == "image" else at + 1] = b"\0" * (
            200 if damage == "image" else 1
        )
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"packed\.h5.*scripts/prepare_age\.py pack=32"):
        build(faces, "train")[0]
    said = []
    again = packed(faces, say=said.append)
    assert [again[index] for index in range(6)] == expected
    assert "packing again" in said[0]
    assert build(faces, "train")[0]["input"].shape == (3, 32, 32)


def test_a_store_of_other_images_is_noticed_and_made_again(faces):
    old = packed(faces)[0]
    digest = packed(faces).digest
    write_jpeg(faces / "crop/0.jpg", 100, 80, seed=77)
    with pytest.raises(ValueError, match=r"crop/0\.jpg is not the image that was packed.*pack=32"):
        build(faces, "train")
    said = []
    assert packed(faces, say=said.append)[0] != old
    assert "has changed since" in said[0]
    assert packed(faces).digest != digest
    build(faces, "train")


def test_a_copy_that_forgets_the_times_is_the_same_store(faces):
    digest = packed(faces).digest
    for file in (faces / "crop").iterdir():
        os.utime(file, (0, 0))
    build(faces, "train")
    assert packed(faces, say=pytest.fail).digest == digest


def pack_with_little_space(faces: Path, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        packed(faces)
    except OSError as error:
        print(error)


@pytest.mark.parametrize("limit", [3000, 9000, 12000])
def test_a_full_disk_is_an_error_that_names_the_file(faces, limit):
    """While the journal is written, and while the store is; HDF5 itself would crash."""
    done = process.call(pack_with_little_space, faces, limit)
    assert done.returncode == 0, done.stderr
    assert "packed.h5" in done.stdout
    assert "could not be written" in done.stdout
    assert not done.stderr
    assert not (faces / "packed.h5").exists()
    assert not (faces / "packed.h5.tmp").exists()
    assert len(packed(faces)) == 6
