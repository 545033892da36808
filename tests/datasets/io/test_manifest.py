"""One text for a dataset's files: it changes with them, and is cheap."""

import os
import time

from datasets.io import manifest as module
from datasets.io.manifest import _crc, manifest


def test_it_follows_size_time_and_content(tmp_path):
    files = [tmp_path / f"{index}.jpg" for index in range(3)]
    states = []
    for text, time_ in (("abc", 1), ("abc", 2), ("abcd", 2), ("abce", 2)):
        files[0].write_text(text)
        os.utime(files[0], ns=(time_, time_))
        states.append([manifest(map(str, files), content) for content in (False, True)])
        _crc.cache_clear()
    files[2].write_text("new")  # was missing
    states.append([manifest(map(str, files), content) for content in (False, True)])
    by_time, by_content = zip(*states, strict=True)
    assert [by_time.index(name) for name in by_time] == [0, 1, 2, 2, 4]
    assert [by_content.index(name) for name in by_content] == [0, 0, 2, 3, 4]


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
