"""One text for a dataset's files: it changes with them, and is cheap."""

import os
import time

from datasets.io import manifest as module
from datasets.io.manifest import manifest


def test_it_follows_size_time_and_content(tmp_path):
    files = [str(tmp_path / f"{index}.jpg") for index in range(3)]
    for file in files[:2]:
        with open(file, "w") as out:
            out.write("abc")
    names = {manifest(files)}
    os.utime(files[0], ns=(1, 1))
    names.add(manifest(files))  # another time
    with open(files[0], "w") as out:
        out.write("abcd")
    os.utime(files[0], ns=(1, 1))
    names.add(manifest(files))  # another size
    with open(files[2], "w") as out:
        out.write("new")
    names.add(manifest(files))  # a file that was missing
    assert len(names) == 4


def test_contents_survive_a_copy_that_forgets_the_times(tmp_path):
    file = tmp_path / "a"
    file.write_text("abc")
    before = manifest([str(file)], content=True)
    os.utime(file, ns=(1, 1))
    assert manifest([str(file)], content=True) == before
    file.write_text("abd")
    assert manifest([str(file)], content=True) != before


def test_a_slow_look_is_remembered_for_a_while(tmp_path, monkeypatch):
    looks = []

    def slow(file, content=False):
        looks.append(file)
        time.sleep(0.002)

    monkeypatch.setattr(module, "file_state", slow)
    monkeypatch.setattr(module, "SLOW", 0.001)
    assert manifest(["a"], key="k") == manifest(["a"], key="k")
    assert len(looks) == 1
    manifest(["a"], key="other")
    assert len(looks) == 2
