"""The faults, by kind; each is a function of a workbench that says what happened."""

import json
import os
import pickle
import re
import shutil
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import h5py
import numpy as np
import torch

from tests.engine.test_settings import WRONG
from tests.engine.test_targets import HOSTILE
from tests.engine.tiny import write_faces
from tests.faults.bench import Bench, Done, alive, command_line, members
from tests.faults.kills import TEMPORARY, process

# Lines of the log, and those with which Fabric starts its ranks.
LOGGED = re.compile(r"\d{4}-\d\d-\d\d |Initializing dist|-{9}|distributed_backend|All distr|$")


class Fault(NamedTuple):
    kind: str
    name: str
    act: Callable[[Bench], tuple[str, bool, bool]]  # what happened, lost, as it should be
    quick: bool = False


def refused(done: Done, *words: str) -> tuple[str, bool, bool]:
    """It ends with code 1 and one paragraph that holds these words, and no traceback."""
    lines = [line for line in done.err.splitlines() if not LOGGED.match(line)]
    text = "\n".join(lines).strip()
    short = len(text.splitlines()) <= 6 and "Traceback" not in text
    good = done.code == 1 and short and all(word in text for word in words)
    return f"exit {done.code}: {text[:150]}", False, good


def settings() -> list[Fault]:
    def fault(override: str) -> Fault:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            done = bench.train("experiment=imdb_wiki/gai", "features=none", override)
            happened, lost, good = refused(done, override.split("=")[0].lstrip("+").split(".")[-1])
            return happened, lost, good and not list(bench.outputs.rglob("*.pt"))

        return Fault("settings", override, act, override in list(WRONG)[:6])

    more = ("trainer.epoch=3", "select.metrik=mae", "nothing=1", "optim=none", "experiment=nope")
    return [fault(override) for override in (*WRONG, *more)]


def evaluation_of(bench: Bench, node: dict) -> tuple[str, bool, bool]:
    """A run folder from elsewhere whose config calls something; nothing must be called."""
    folder = finished_run(bench)
    trace = bench.folder / "trace"
    kept = (folder / "config.yaml").read_text()
    text = json.dumps(node).replace("{trace}", str(trace))
    (folder / "config.yaml").write_text(kept.replace("csv: ", f"store_: {text}\n  csv: ", 1))
    arguments = (f"run={folder}", "trust=[tests.engine.tiny_only]", "accelerator=cpu")
    happened, _, good = refused(bench.wait(bench.start("evaluate", *arguments)))
    (folder / "config.yaml").write_text(kept)
    return happened, False, good and not trace.exists()


def finished_run(bench: Bench) -> Path:
    """The folder of a finished tiny run."""
    found = list(bench.outputs.rglob("metrics.json"))
    if not found:
        done = bench.train()
        assert done.code == 0, done.err
        found = list(bench.outputs.rglob("metrics.json"))
    return found[0].parent


def hostile() -> list[Fault]:
    faults = [
        Fault("hostile", f"run folder calls {node['_target_']}"[:60], make_evaluation(node), i < 2)
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

    class Bad:
        def __init__(self, trace: Path):
            self.trace = trace

        def __reduce__(self):
            return (os.system, (f"touch {self.trace}",))

    def saved(trace: Path) -> bytes:
        import io

        buffer = io.BytesIO()
        torch.save({"format": "balanced-regression checkpoint 1", "objective": Bad(trace)}, buffer)
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


def make_evaluation(node: dict) -> Callable[[Bench], tuple[str, bool, bool]]:
    return lambda bench: evaluation_of(bench, node)


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
    for name in ("zeroed rows", "cut", "no checksums"):
        faults.append(Fault("file", f"cached features: {name}", features(name), name == "cut"))
    for name in ("an image", "cut", "the index"):
        faults.append(Fault("file", f"packed store: {name}", store(name), name == "an image"))
    faults.append(Fault("file", "images replaced after a run", replaced, True))
    faults.append(Fault("file", "images replaced after packing", repacked))
    faults.append(Fault("file", "a table's JSON cut in the report", cut_table))
    return faults


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


STAGE2 = ("experiment=imdb_wiki/bmc", "features=cached", "features.views=1")


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
                else:
                    del file["sums"]
        happened, _, good = refused(bench.train(*STAGE2, "rerun=true"), "train.h5", "Remove")
        path.unlink()
        again = bench.train(*STAGE2, "rerun=true")
        return f"{happened} -> removed: exit {again.code}", again.code != 0, good and not again.code

    return act


def packing(bench: Bench) -> list[str]:
    root = bench.data / "imdb_wiki"
    return ["source=imdb_wiki", f"root={root}", "pack=16"]


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
    return f"{happened} -> {again.out.strip()[:60]}", False, good


def replaced(bench: Bench) -> tuple[str, bool, bool]:
    assert bench.train().code == 0
    faces = bench.data / "imdb_wiki" / "faces"
    (faces / "test0.jpg").write_bytes((faces / "train1.jpg").read_bytes())
    again = bench.train()
    good = again.code == 0 and "run again, as images changed" in again.err
    return f"exit {again.code}: {again.err[:120]}", not good, good


def cut_table(bench: Bench) -> tuple[str, bool, bool]:
    (bench.outputs / "tables").mkdir(parents=True)
    (bench.outputs / "tables" / "imdb_wiki_mini.json").write_text('{"rows": {')
    done = bench.wait(bench.start("report", f"outputs={bench.outputs}"))
    return refused(done, "imdb_wiki_mini.json", "remove")


def disk() -> list[Fault]:
    def full(limit: int) -> Callable[[Bench], tuple[str, bool, bool]]:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            done = bench.train(limit=limit)
            happened, _, good = refused(done)
            if done.code == 0:
                happened, good = "fits", True
            elif good:
                good = "could not be written" in done.err
            left = [path for form in TEMPORARY for path in bench.outputs.rglob(form)]
            again = bench.train()
            return f"{happened} -> exit {again.code}", again.code != 0, good and not left

        return act

    def stage2(limit: int) -> Callable[[Bench], tuple[str, bool, bool]]:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            assert bench.train().code == 0
            done = bench.train(*STAGE2, limit=limit)
            happened, _, good = refused(done)
            good = done.code == 0 or (good and "could not be written" in done.err)
            again = bench.train(*STAGE2)
            return f"{happened} -> exit {again.code}", again.code != 0, good

        return act

    def pack(limit: int) -> Callable[[Bench], tuple[str, bool, bool]]:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            done = bench.wait(bench.start("prepare_age", *packing(bench), limit=limit))
            happened, _, good = refused(done, "imdb_wiki_16.h5")
            again = bench.wait(bench.start("prepare_age", *packing(bench)))
            return f"{happened} -> exit {again.code}", again.code != 0, good

        return act

    train = [100, 500, 1000, 2000, 3000, 4000, 6000, 8000, 12000, 20000]
    faults = [
        Fault("disk", f"train, files of {n} bytes at most", full(n), n == 3000) for n in train
    ]
    faults += [
        Fault("disk", f"features, {n} bytes at most", stage2(n)) for n in (3000, 9000, 30000)
    ]
    faults += [
        Fault("disk", f"packing, {n} bytes at most", pack(n), n == 9000) for n in (3000, 9000)
    ]
    return faults


def resources() -> list[Fault]:
    def unwritable(bench: Bench) -> tuple[str, bool, bool]:
        bench.outputs.write_text("a file where the folder should be")
        return refused(bench.train())

    def no_data(bench: Bench) -> tuple[str, bool, bool]:
        return refused(bench.train("paths.data=nowhere"), "imdb_wiki.csv", "prepare_age")

    def gpu(bench: Bench) -> tuple[str, bool, bool]:
        if torch.cuda.is_available():
            return "a GPU is there", False, True
        return refused(bench.train("trainer.accelerator=gpu"), "no GPU is visible")

    def empty_group(bench: Bench) -> tuple[str, bool, bool]:
        done = bench.train("log.show=[bmae,bmae_many]")
        return (
            f"exit {done.code}: {done.out.strip()[-40:]}",
            False,
            done.code == 0 and "-" in done.out,
        )

    def diverged(bench: Bench) -> tuple[str, bool, bool]:
        return refused(bench.train("optim.optimizer.lr=1e6"), "optim.optimizer.lr", "no result")

    def sweep(bench: Bench) -> tuple[str, bool, bool]:
        told = bench.tiny("paths.data=nowhere,neverwhere")
        done = bench.wait(bench.start("train", "--multirun", *told))
        return refused(done, "nowhere/imdb_wiki", "neverwhere/imdb_wiki")

    faults = {"outputs is a file": unwritable, "no data": no_data, "no GPU": gpu}
    faults |= {"an empty shot group": empty_group, "a learning rate of a million": diverged}
    faults |= {"two jobs of a sweep fail": sweep}
    return [
        Fault("resources", name, act, name in ("no data", "two jobs of a sweep fail"))
        for name, act in faults.items()
    ]


def ranks() -> list[Fault]:
    def devices(value: str) -> Callable[[Bench], tuple[str, bool, bool]]:
        return lambda bench: refused(bench.train(f"trainer.devices={value}"), "devices")

    def few(bench: Bench) -> tuple[str, bool, bool]:
        done = bench.train("trainer.devices=4", "trainer.epoch_size=3")
        return refused(done, "cannot be shared by 4 devices")

    faults = [Fault("ranks", f"devices={v}", devices(v), v == "abc") for v in ("0", "-1", "abc")]
    faults.append(Fault("ranks", "fewer samples than ranks", few))
    faults.append(Fault("ranks", "a rank without samples to evaluate", empty_rank))
    return [*faults, Fault("ranks", "one of two is killed", lost_rank)]


def empty_rank(bench: Bench) -> tuple[str, bool, bool]:
    """Two ranks and one test image: the numbers are those of one process."""
    shutil.rmtree(bench.data)
    write_faces(bench.data, other=1)
    done = bench.train("trainer.devices=2")
    folder = next(bench.outputs.rglob("metrics.json")).parent
    told = (f"run={folder}", "accelerator=cpu", "trust=[tests]")
    alone = bench.wait(bench.start("evaluate", *told))
    one = json.loads((folder / "evaluation_best_test.json").read_text())["mae"]
    two = json.loads((folder / "metrics.json").read_text())["metrics"]["test/mae"]
    good = done.code == alone.code == 0 and abs(one - two) < 1e-5 * one  # sums in another order
    return f"exit {done.code}, mae {two:.4f}, alone {one:.4f}", not good, good


def lost_rank(bench: Bench) -> tuple[str, bool, bool]:
    """kill -9 of one rank after a checkpoint; the same command goes on to the same numbers."""
    two = ("trainer.devices=2", "trainer.epochs=20")
    whole = Bench(bench.folder / "whole")
    assert whole.train(*two, f"paths.data={bench.data}").code == 0
    child = bench.start("train", *bench.tiny(*two))
    while not list(bench.outputs.rglob("last.pt")):
        time.sleep(0.01)
    spawned = [pid for pid in members(child) if b"spawn_main" in command_line(pid)]
    os.kill(spawned[-1], signal.SIGKILL)
    broken = bench.wait(child)
    left = alive(child)
    again = bench.train(*two)
    pair = [next(b.outputs.rglob("metrics.json")).read_text() for b in (bench, whole)]
    first, second = (json.loads(text)["metrics"] for text in pair)
    good = broken.code == 1 and again.code == 0 and first == second and not left
    text = f"exit {broken.code}, then {again.code}: the same numbers {first == second}"
    return f"{text}, processes left {len(left)}", first != second, good


def catalogue(moments: int) -> list[Fault]:
    return [
        *settings(), *hostile(), *files(), *disk(), *resources(), *ranks(),
        *(Fault(*kill) for kill in process(moments)),
    ]  # fmt: skip


def replay(
    folder: Path, kinds: list[str], quick: bool, moments: int, say: Callable[[str], Any]
) -> list[dict[str, Any]]:
    """Act out the faults of these kinds, one after the other, each on a bench of its own."""
    found = []
    for fault in catalogue(moments):
        if fault.kind not in kinds or (quick and not fault.quick):
            continue
        try:
            happened, lost, good = fault.act(Bench(folder / "bench"))
        except Exception as error:
            happened, lost, good = f"{type(error).__name__}: {error}"[:150], True, False
        line = " ".join(happened.split())
        end = "lost" if lost else "not lost"
        say(f"{'ok ' if good else 'BAD'} {fault.kind:9} {fault.name:45} -> {line} -> {end}")
        about = {"kind": fault.kind, "fault": fault.name, "happened": line}
        found.append({**about, "lost": lost, "good": good})
    return found
