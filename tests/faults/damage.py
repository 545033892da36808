"""Files that are cut, changed or gone: the error names them, and what it advises works."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from tests.faults.bench import Bench
from tests.faults.fault import STAGE2, Fault, beginning, finished_run, packing, refused


def files() -> list[Fault]:
    faults = []
    contents = {"cut": '{"metrics": {', "null": "null", "{}": "{}", "empty": "", "a list": "[1]"}
    for name, text in contents.items():
        change = text_into("metrics.json", text)
        faults.append(damage(f"metrics.json {name}", change, "rerun=true"))
    for file in ("last.pt", "best.pt"):
        faults += [
            damage(f"{file} kept to {share:.0%}", cut(file, share), "rerun=true")
            for share in (0.0, 0.3, 0.9)
        ]
        faults.append(damage(f"{file} with a changed byte", flip(file), "rerun=true"))
        faults.append(damage(f"{file} gone", gone(file), "rerun=true"))
    faults += [
        damage(f"{file} gone", gone(f"../{file}"), "rerun=true")
        for file in ("predictions.npz", "config.yaml", "identity.json", "train.log", "lock")
    ]
    faults.append(damage("best.pt cut", cut("best.pt", 0.5), "rerun=true"))

    def image(name: str, change: Callable[[Path], None], *words: str) -> Fault:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            change(bench.data / "imdb_wiki" / "faces" / "train0.jpg")
            return refused(bench.train(), "train0.jpg", *words)

        return Fault("file", f"image {name}", act)

    faults += [
        image("empty", lambda path: path.write_bytes(b"")),
        image("cut in its header", lambda path: path.write_bytes(path.read_bytes()[:30])),
        image("is text", lambda path: path.write_text("no image")),
        image("gone", lambda path: path.unlink(), "no such image"),
        image("is a folder", lambda path: (path.unlink(), path.mkdir())),
        image("is a link elsewhere", lambda path: (path.unlink(), path.symlink_to("/etc/hosts"))),
    ]
    for name in ("zeroed rows", "a NaN", "cut", "no checksums"):
        faults.append(Fault("file", f"cached features: {name}", features(name), name == "cut"))
    for name in ("an image", "cut", "the index"):
        faults.append(Fault("file", f"packed store: {name}", store(name), name == "an image"))
    faults.append(Fault("file", "images replaced after packing", repacked))
    faults.append(Fault("file", "a table's JSON cut in the report", cut_table))
    return faults


def damage(name: str, change: Callable[[Path], None], repair: str) -> Fault:
    """Damage a file of a finished run; the error names it, and what it says to do works."""

    def act(bench: Bench) -> tuple[str, bool, bool]:
        folder = finished_run(bench)
        before = json.loads((folder / "metrics.json").read_text())["metrics"]
        change(folder)
        done = bench.train()
        if done.code == 0:
            happened, good = "made again, or not needed", True
        else:
            happened, _, good = refused(done, "rerun=true")
        again = bench.train(repair)
        after = json.loads((folder / "metrics.json").read_text())["metrics"]
        lost = again.code != 0 or after != before
        return f"{happened} -> {repair}: exit {again.code}", lost, good and not lost

    return Fault("file", name, act, name in ("metrics.json cut", "best.pt cut"))


def text_into(file: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_text(text) and None


def cut(file: str, share: float) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / "metrics.json").unlink()
        data = (folder / "checkpoints" / file).read_bytes()
        (folder / "checkpoints" / file).write_bytes(data[: int(share * len(data))])

    return act


def flip(file: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / "metrics.json").unlink()
        path = folder / "checkpoints" / file
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 255
        path.write_bytes(data)

    return act


def gone(file: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / "metrics.json").unlink(missing_ok=True)
        (folder / "checkpoints" / file).unlink(missing_ok=True)

    return act


def features(name: str) -> Callable[[Bench], tuple[str, bool, bool]]:
    def act(bench: Bench) -> tuple[str, bool, bool]:
        assert bench.train(*STAGE2).code == 0
        (path,) = bench.outputs.glob("features/*/train.h5")
        if name == "cut":
            path.write_bytes(path.read_bytes()[:2000])
        else:
            with h5py.File(path, "r+") as file:
                if name == "zeroed rows":
                    file["features"][0, :5] = 0
                elif name == "a NaN":
                    file["features"][0, 0, 0] = np.nan
                else:
                    del file["sums"]
        happened, _, good = refused(bench.train(*STAGE2, "rerun=true"), "train.h5", "Remove")
        path.unlink()
        again = bench.train(*STAGE2, "rerun=true")
        return f"{happened} -> removed: exit {again.code}", again.code != 0, good and not again.code

    return act


def store(name: str) -> Callable[[Bench], tuple[str, bool, bool]]:
    def act(bench: Bench) -> tuple[str, bool, bool]:
        path = bench.data / "imdb_wiki" / "imdb_wiki_16.h5"
        first = bench.wait(bench.start("prepare_age", *packing(bench)))
        assert first.code == 0, first.err
        data = bytearray(path.read_bytes())
        with h5py.File(path) as file:
            at = file["bytes" if name == "an image" else "sums"].id.get_offset()
        data[at : at + 40] = b"\0" * 40
        path.write_bytes(data if name != "cut" else data[:3000])
        used = bench.train(f"dataset.store={path}")
        happened, _, good = refused(used, "imdb_wiki_16.h5", "pack=16")
        again = bench.wait(bench.start("prepare_age", *packing(bench)))
        then = bench.train(f"dataset.store={path}")
        good = good and again.code == then.code == 0
        return f"{happened} -> packed again: exit {then.code}", not good, good

    return act


def repacked(bench: Bench) -> tuple[str, bool, bool]:
    path = bench.data / "imdb_wiki" / "imdb_wiki_16.h5"
    assert bench.wait(bench.start("prepare_age", *packing(bench))).code == 0
    faces = bench.data / "imdb_wiki" / "faces"
    (faces / "train0.jpg").write_bytes((faces / "train1.jpg").read_bytes())
    happened, _, good = refused(bench.train(f"dataset.store={path}"), "train0.jpg", "pack=16")
    again = bench.wait(bench.start("prepare_age", *packing(bench)))
    good = good and "packing again" in again.out
    return f"{happened} -> {beginning(again.out.strip())}", False, good


def cut_table(bench: Bench) -> tuple[str, bool, bool]:
    (bench.outputs / "tables").mkdir(parents=True)
    (bench.outputs / "tables" / "imdb_wiki_mini.json").write_text('{"rows": {')
    done = bench.wait(bench.start("report", f"outputs={bench.outputs}"))
    return refused(done, "imdb_wiki_mini.json", "remove")
