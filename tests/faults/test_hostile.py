"""Run folders, checkpoints, images and tables that were made to do harm: nothing is executed."""

import io
import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from engine import RESULTS
from engine.runs import records
from tests.engine.cli.test_targets import HOSTILE
from tests.faults.bench import Bench, assert_refused

quick = pytest.mark.quick


class Bad:
    """Writes a file when it is unpickled."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return (os.system, (f"touch {self.trace}",))


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(node, marks=[quick] * (number < 2))
        for number, node in enumerate(HOSTILE)
        if "${name}" not in str(node)
    ],
    ids=lambda node: str(node["_target_"])[:40],
)
def test_the_config_of_a_run_folder(node: dict, bench: Bench):
    folder, trace = bench.finished_run(), bench.folder / "trace"
    for name in ("e.npy", "e.pt", "e.pkl"):  # reading one of them with pickle writes the trace
        (bench.folder / name).write_bytes(pickle.dumps(Bad(trace)))
    text = json.dumps(node).replace("{trace}", str(trace)).replace('"e.', f'"{bench.folder}/e.')
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("csv: ", f"store_: {text}\n  csv: ", 1))
    done = bench.run("evaluate", f"run={folder}", "trust=[tests.engine.other]", "accelerator=cpu")
    assert_refused(done)
    assert not trace.exists()


def saved(bad: Bad) -> bytes:
    buffer = io.BytesIO()
    torch.save({"format": "balanced-regression checkpoint 1", "task": bad}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("dumps", [pickle.dumps, saved], ids=["pickle", "torch.save"])
def test_a_checkpoint(dumps: Callable[[Bad], bytes], bench: Bench):
    trace, path = bench.folder / "trace", bench.folder / "hostile.pt"
    path.write_bytes(dumps(Bad(trace)))
    assert_refused(bench.train(f"resume={path}"), "hostile.pt")
    assert not trace.exists()


@pytest.mark.parametrize(
    "size", [pytest.param((20000, 20000), marks=quick), (2**31 - 1, 1), (1, 2**31 - 1)], ids=str
)
def test_an_image_of_many_pixels(size: tuple[int, int], bench: Bench):
    data = cv2.imencode(".png", np.zeros((8, 8), np.uint8))[1].tobytes()
    path = bench.faces / "train0.jpg"
    path.write_bytes(data[:16] + struct.pack(">II", *size) + data[24:])
    assert_refused(bench.train(), "train0.jpg", "max_pixels")


HEAD = b"age,path,split\n"
CSV = {
    "binary": (bytes(range(256)) * 50, ""),
    "a path that leaves the folder": (HEAD + b"1,../../etc/passwd,train\n", "path below"),
    "an absolute path": (HEAD + b"1,/etc/passwd,train\n", "path below"),
    "an age in letters": (HEAD + b"abc,faces/train0.jpg,train\n", "line 2"),
    "an age that is NaN": (HEAD + b"nan,faces/train0.jpg,train\n", "line 2"),
    "a negative age": (HEAD + b"-3,faces/train0.jpg,train\n", "line 2"),
    "no samples": (HEAD, ""),
    "empty": (b"", ""),
    "an unknown split": (HEAD + b"1,faces/train0.jpg,trian\n", "line 2"),
    "a short line": (HEAD + b"1,faces/train0.jpg\n", "line 2"),
}


@pytest.mark.parametrize("name", CSV)
def test_a_csv(name: str, bench: Bench):
    content, word = CSV[name]
    bench.csv.write_bytes(content)
    assert_refused(bench.train(), "imdb_wiki.csv", word)


def test_html_in_a_table_is_escaped(bench: Bench):
    table = records.read(RESULTS / "imdb_wiki_mini.json", "")
    tag = "<img src=x onerror=alert(1)>"
    rows = {tag: next(iter(table["rows"].values()))}
    records.write(bench.outputs / "tables" / "imdb_wiki_mini.json", {**table, "rows": rows})
    bench.run("report", f"outputs={bench.outputs}")
    for name in ("report.md", "report.html"):
        page = (bench.outputs / name).read_text()
        assert tag not in page
        assert "onerror" in page
