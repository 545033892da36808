"""Run folders, checkpoints, images and tables that were made to do harm."""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import cv2
import h5py
import numpy as np
import torch
from tests.engine.test_targets import HOSTILE

from engine import RESULTS
from engine.runs import records
from tests.faults.bench import Bench
from tests.faults.fault import Fault, finished_run, packing, refused


class Bad:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return (os.system, (f"touch {self.trace}",))


def hostile() -> list[Fault]:
    faults = [
        Fault(
            "hostile", f"run folder {i} calls {node['_target_']}"[:60], make_evaluation(node), i < 2
        )
        for i, node in enumerate(HOSTILE)
        if "${name}" not in str(node)
    ]

    def pickled(name: str, content: Callable[[Path], bytes]) -> Fault:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            trace = bench.folder / "trace"
            path = bench.folder / "hostile.pt"
            path.write_bytes(content(trace))
            happened, lost, good = refused(bench.train(f"resume={path}"), "hostile.pt")
            return happened, lost, good and not trace.exists()

        return Fault("hostile", name, act)

    def saved(trace: Path) -> bytes:
        import io

        buffer = io.BytesIO()
        torch.save({"format": "balanced-regression checkpoint 1", "task": Bad(trace)}, buffer)
        return buffer.getvalue()

    faults.append(pickled("checkpoint is a pickle of os.system", lambda t: pickle.dumps(Bad(t))))
    faults.append(pickled("checkpoint holds os.system", saved))

    def image(width: int, height: int) -> Callable[[Bench], tuple[str, bool, bool]]:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            data = cv2.imencode(".png", np.zeros((8, 8), np.uint8))[1].tobytes()
            path = bench.data / "imdb_wiki" / "faces" / "train0.jpg"
            path.write_bytes(data[:16] + struct.pack(">II", width, height) + data[24:])
            return refused(bench.train(), "train0.jpg", "max_pixels")

        return act

    for width, height in ((20000, 20000), (2**31 - 1, 1), (1, 2**31 - 1)):
        wide = width * height > 50_000_000
        if wide:
            name = f"image of {width} x {height} pixels"
            faults.append(Fault("hostile", name, image(width, height), width == 20000))

    def csv(name: str, text: bytes, *words: str) -> Fault:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            (bench.data / "imdb_wiki" / "imdb_wiki.csv").write_bytes(text)
            return refused(bench.train(), "imdb_wiki.csv", *words)

        return Fault("hostile", name, act)

    stores = {"link to another file": "a link", "soft link": "a soft link"}
    stores |= {"numbers of another file": "in another file", "64 TB of zeros": "chunks"}
    stores |= {"512 GB that are not there": "the file has 0", "numbers with a comma": "float"}
    for i, (name, word) in enumerate(stores.items()):
        faults.append(Fault("hostile", f"packed store: {name}", stored(i, word), i == 4))
    faults.append(Fault("hostile", "a row of a table is HTML", html))
    faults += [
        csv("CSV is binary", bytes(range(256)) * 50),
        csv("CSV path leaves the folder", b"age,path,split\n1,../../etc/passwd,train\n", "leaves"),
        csv("CSV path is absolute", b"age,path,split\n1,/etc/passwd,train\n", "leaves"),
        csv("CSV age is text", b"age,path,split\nabc,faces/train0.jpg,train\n", "line 2"),
        csv("CSV age is NaN", b"age,path,split\nnan,faces/train0.jpg,train\n", "line 2"),
        csv("CSV age is negative", b"age,path,split\n-3,faces/train0.jpg,train\n", "line 2"),
        csv("CSV without rows", b"age,path,split\n"),
        csv("CSV is empty", b""),
        csv("CSV split unknown", b"age,path,split\n1,faces/train0.jpg,trian\n", "line 2"),
        csv("CSV row too short", b"age,path,split\n1,faces/train0.jpg\n", "line 2"),
    ]
    return faults


def html(bench: Bench) -> tuple[str, bool, bool]:
    """Neither page has it as a tag."""
    table = records.read(RESULTS / "imdb_wiki_mini.json", "")
    tag = "<img src=x onerror=alert(1)>"
    rows = {tag: next(iter(table["rows"].values()))}
    records.write(bench.outputs / "tables" / "imdb_wiki_mini.json", {**table, "rows": rows})
    done = bench.wait(bench.start("report", f"outputs={bench.outputs}"))
    pages = [bench.outputs / name for name in ("report.md", "report.html")]
    raw = [page.name for page in pages if tag in page.read_text()]
    named = all("onerror" in page.read_text() for page in pages)
    return f"exit {done.code}, a tag in {raw or 'neither'}", False, not raw and named


def stored(kind: int, word: str) -> Callable[[Bench], tuple[str, bool, bool]]:
    """A packed store whose index is somewhere else, or larger than any memory."""

    def act(bench: Bench) -> tuple[str, bool, bool]:
        assert bench.wait(bench.start("prepare_age", *packing(bench))).code == 0
        path = bench.data / "imdb_wiki" / "imdb_wiki_16.h5"
        with h5py.File(path, "r+") as file:
            length = len(np.asarray(file["offsets"]))
            del file["offsets"]
            if kind < 2:
                links = h5py.ExternalLink("/etc/other.h5", "/offsets"), h5py.SoftLink("/sums")
                file["offsets"] = links[kind]
            elif kind == 2:
                where = [("/etc/hosts", 0, 8 * length)]
                file.create_dataset("offsets", (length,), np.int64, external=where)
            elif kind == 3:
                file.create_dataset("offsets", (2**43,), np.int64, chunks=(2**20,))
            elif kind == 4:
                file.create_dataset("offsets", (2**36,), np.int64)
            else:
                file["offsets"] = np.arange(length, dtype=np.float64)
        return refused(bench.train(f"dataset.store={path}"), path.name, word, "pack=16")

    return act


def make_evaluation(node: dict) -> Callable[[Bench], tuple[str, bool, bool]]:
    return lambda bench: evaluation_of(bench, node)


def evaluation_of(bench: Bench, node: dict) -> tuple[str, bool, bool]:
    """A run folder from elsewhere whose config calls something; nothing must be called."""
    folder = finished_run(bench)
    trace = bench.folder / "trace"
    kept = (folder / "config.yaml").read_text()
    for name in ("e.npy", "e.pt", "e.pkl"):  # whoever reads one of them with pickle is caught
        (bench.folder / name).write_bytes(pickle.dumps(Bad(trace)))
    text = json.dumps(node).replace("{trace}", str(trace))
    text = text.replace('"e.', f'"{bench.folder}/e.')
    (folder / "config.yaml").write_text(kept.replace("csv: ", f"store_: {text}\n  csv: ", 1))
    arguments = (f"run={folder}", "trust=[tests.engine.tiny_only]", "accelerator=cpu")
    happened, _, good = refused(bench.wait(bench.start("evaluate", *arguments)), "Nothing was call")
    (folder / "config.yaml").write_text(kept)
    return happened, False, good and not trace.exists()
