"""kill -9, TERM and INT at random moments: started again, it makes the same."""

import functools
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import torch

from models.regressor import Smoothing
from tests.engine.tiny import TinyNet, write_faces
from tests.faults.bench import TINY, Bench, alive

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TEMPORARY = ("*.tmp", "*.part", "*.parts", "*.journal", "*.partial-*")
TABLE = "imdb_wiki_sigma"  # of four runs on one stage 1
TRACE = "at_work"  # is there once a model is used
TRIES = 20  # draws until a moment falls between the first checkpoint and the end
CHANGING = ("meta", "seconds", "cpu_seconds", "folder", "sha256", "checksum", "run_seconds")


class Script(NamedTuple):
    """A script, what it is told, when its first checkpoint is there, and what it makes."""

    name: str
    arguments: Callable[[Bench], list[str]]
    ready: Callable[[Bench], bool]
    final: tuple[str, ...]  # patterns of files, as seen from the bench
    before: Callable[[Bench], Any] = lambda bench: None  # what has to be there


def _has(pattern: str) -> Callable[[Bench], bool]:
    return lambda bench: next(bench.outputs.rglob(pattern), None) is not None


def _at_work(bench: Bench) -> bool:
    return (bench.folder / TRACE).exists()


def _train(bench: Bench) -> list[str]:
    return bench.tiny("trainer.epochs=6")


def _for_runs() -> list[str]:
    kept = [text for text in TINY if not text.startswith(("experiment", "preset"))]
    return [text.replace("dataset.", "++dataset.") for text in kept]


def table(bench: Bench) -> list[str]:
    places = [f"paths.data={bench.data}", f"paths.outputs={bench.outputs}"]
    own = [f"table={TABLE}", "preset=laptop", "seeds=1", "jobs=2", "trust=[tests]", *places]
    return [*own, f"overrides={_listed(_for_runs())}"]


def _listed(overrides: list[str]) -> str:
    return "[" + ",".join(json.dumps(text) for text in overrides) + "]"


def reproduce(bench: Bench) -> list[str]:
    synthetic = [f"folder={bench.outputs}/synthetic", *_synthetic_settings()]
    return [
        *(f"table=[synthetic,{TABLE}]", "data=real", "preset=laptop", "seeds=1", "jobs=1"),
        *(f"paths.data={bench.data}", f"paths.outputs={bench.outputs}"),
        *(f"overrides={_listed(_for_runs())}", f"synthetic={_listed(synthetic)}"),
    ]


def _synthetic_settings() -> list[str]:
    drawn = ["seeds=1", "epochs=20", "columns=[normal_high]", "methods=[Vanilla,GAI,BMC]"]
    return [*drawn, "figures=false", "workers=1"]


def synthetic(bench: Bench) -> list[str]:
    return [f"folder={bench.outputs}", *_synthetic_settings()]


def _mini(bench: Bench) -> list[str]:
    return ["draw=[faces]", f"folder={bench.outputs}/faces", "images=300", "size=32", "cap=2"]


def _age(bench: Bench) -> list[str]:
    root = bench.outputs / "imdb_wiki"
    return ["source=imdb_wiki", f"root={root}", "pack=16"]


def _many_faces(bench: Bench) -> None:
    write_faces(bench.outputs, train=1500)


class Traced(TinyNet):
    """A model that leaves a file when it is used: from then on a script is at work."""

    def __init__(self, trace: str, outputs: int = 1, smoothing: Smoothing | None = None):
        super().__init__(outputs, smoothing=smoothing)
        self.trace = Path(trace)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        self.trace.touch()
        return super().features(x)


def _finished(bench: Bench) -> None:
    shutil.rmtree(bench.data)
    write_faces(bench.data, other=300)
    model = f"{__name__}.{Traced.__name__}"
    trace = bench.folder / TRACE
    done = bench.train(f"model._target_={model}", f"+model.trace={trace}")
    assert done.code == 0, done.err
    trace.unlink()


def _evaluate(bench: Bench) -> list[str]:
    folder = next(bench.outputs.rglob("metrics.json")).parent
    return [f"run={folder}", "accelerator=cpu", "trust=[tests]", "batch_size=1"]


REPRODUCE = Script("reproduce", reproduce, _has("runs/*.npz"), ("tables/*.json", "synthetic.json"))
SCRIPTS = (  # the quick ones first
    Script("train", _train, _has("last.pt"), ("metrics.json", "predictions.npz", "best.pt")),
    Script("evaluate", _evaluate, _at_work, ("evaluation_*.json",), _finished),
    Script(
        "prepare_age", _age, _has("imdb_wiki_16.h5.*"), ("imdb_wiki_16.h5", "*.csv"), _many_faces
    ),
    Script("prepare_mini", _mini, _has("*.jpg"), ("*.jpg", "imdb_wiki.csv")),
    Script("run_synthetic", synthetic, _has("runs/*.npz"), ("synthetic.json", "runs/*.npz")),
    REPRODUCE,
    Script("table", table, _has("last.pt"), ("tables/*.json",)),
)


def process(moments: int) -> list[tuple[str, str, Callable[[Bench], Any], bool]]:
    """(kind, name, act, quick) of kills of every script, each signal in turn."""
    return [
        (
            "process",
            f"{script.name}.py, {SIGNALS[number % 3].name}, moment {number}",
            functools.partial(killed, script, number),
            script.name == "train" and not number,
        )
        for script in SCRIPTS
        for number in range(moments)
    ]


_unbroken: dict[str, tuple[dict[str, Any], float]] = {}


def unbroken(script: Script, folder: Path) -> tuple[dict[str, Any], float]:
    """What the script makes without a kill, and the seconds from its first checkpoint on."""
    if script.name not in _unbroken:
        bench = Bench(folder)
        script.before(bench)
        child = bench.start(script.name, *script.arguments(bench))
        while not script.ready(bench) and not os.waitid(
            os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        ):
            time.sleep(0.01)
        start = time.monotonic()
        done = bench.wait(child)
        assert done.code == 0, done.err[-500:]
        _unbroken[script.name] = contents(script, bench), time.monotonic() - start
        shutil.rmtree(folder)
    return _unbroken[script.name]


def killed(script: Script, number: int, bench: Bench) -> tuple[str, bool, bool]:
    """Kill it, start it again, compare; a kill that did not fall in between is drawn again."""
    whole, span = unbroken(script, bench.folder / "unbroken")
    sign, draw = SIGNALS[number % 3], random.Random(number)
    for _ in range(TRIES):
        bench = Bench(bench.folder)
        script.before(bench)
        child = bench.start(script.name, *script.arguments(bench))
        after = draw.uniform(0, span)
        hit = bench.kill_when(child, functools.partial(script.ready, bench), after, sign)
        bench.heard(child)
        if hit:
            break
    else:
        return f"no moment out of {TRIES} fell before the end", False, False
    left = alive(child)
    done = bench.wait(bench.start(script.name, *script.arguments(bench)))
    temporary = [p.name for form in TEMPORARY for p in bench.folder.rglob(form)]
    made = contents(script, bench)
    same = bool(whole) and made == whole
    good = done.code == 0 and same and not left and not temporary
    text = f"{sign.name} after {after:.2f} of {span:.2f} s: exit {done.code}, {len(made)} files, "
    text += f"the same {same}, left: {len(left)} processes, {temporary or 'no'} temporary files"
    return text, not same, good


def contents(script: Script, bench: Bench) -> dict[str, Any]:
    """What is in the final files, without times and the names of folders that hold a key."""
    found: dict[str, Any] = {}
    for pattern in script.final:
        for path in sorted(bench.outputs.rglob(pattern)):
            place = "/".join(p.split("-")[0] for p in path.relative_to(bench.outputs).parts[:-1])
            found[f"{place}/{path.name}"] = read(path)
    return found


def read(path: Path) -> Any:
    if path.suffix == ".json":
        return _lasting(json.loads(path.read_text()))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key].tobytes() for key in file if key not in CHANGING}
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return {key: np.asarray(file[key]).tobytes() for key in ("bytes", "sums")}
    if path.suffix == ".pt":
        task = torch.load(path, weights_only=True)["task"]
        return {key: value.numpy().tobytes() for key, value in task.items()}
    return path.read_bytes()


def _lasting(content: Any) -> Any:
    """Without what says when and where it was made."""
    if isinstance(content, dict):
        return {k: _lasting(v) for k, v in content.items() if k not in CHANGING}
    return content
