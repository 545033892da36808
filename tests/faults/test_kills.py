"""SIGKILL, SIGTERM and SIGINT at random moments: the same command resumes to the same files."""

import functools
import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from datasets.ages import AgeDataset
from tests.engine.tiny import write_faces
from tests.faults.bench import STAGE2, TINY, Bench, Running

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MOMENTS = 30  # at which each script is killed
TRIES = 20  # until a moment falls between the first checkpoint and the end
TABLE = "imdb_wiki_sigma"  # four runs on one stage 1
CHANGING = ("meta", "seconds", "cpu_seconds", "folder", "sha256", "checksum", "run_seconds")
SYNTHETIC = (
    *("seeds=1", "epochs=20", "columns=[normal_high]", "methods=[Vanilla,GAI,BMC]"),
    *("figures=false", "workers=1"),
)


class Script(NamedTuple):
    arguments: Callable[[Bench], list[str]]
    ready: Callable[[Bench], Any]  # the first checkpoint exists
    final: tuple[str, ...]  # patterns of the files that it makes
    before: Callable[[Bench], Any] = lambda bench: None


def has(pattern: str) -> Callable[[Bench], bool]:
    return lambda bench: next(bench.outputs.rglob(pattern), None) is not None


def listed(overrides: list[str]) -> str:
    return "[" + ",".join(json.dumps(text) for text in overrides) + "]"


def table(bench: Bench) -> list[str]:
    own = [text for text in TINY if not text.startswith(("experiment", "preset"))]
    own = [text.replace("dataset.", "++dataset.") for text in own]
    return [
        *(f"table={TABLE}", "preset=laptop", "seeds=1", "jobs=2", f"overrides={listed(own)}"),
        *(f"paths.data={bench.data}", f"paths.outputs={bench.outputs}"),
    ]


def reproduce(bench: Bench) -> list[str]:
    _, *others = table(bench)
    synthetic = listed([f"folder={bench.outputs}/synthetic", *SYNTHETIC])
    return [f"table=[synthetic,{TABLE}]", "data=real", f"synthetic={synthetic}", *others, "jobs=1"]


def evaluate(bench: Bench) -> list[str]:
    folder = next(bench.outputs.rglob("metrics.json")).parent
    return [f"run={folder}", "accelerator=cpu", "trust=[tests]", "batch_size=1"]


def prepare_mini(bench: Bench) -> list[str]:
    return ["draw=[faces]", f"folder={bench.outputs}/faces", "images=300", "size=32", "cap=2"]


SCRIPTS = {
    "train": Script(  # stage 1, its features, stage 2
        lambda bench: bench.tiny(*STAGE2, "trainer.epochs=6"),
        has("last.pt"),
        ("metrics.json", "predictions.npz", "*.pt"),
    ),
    "evaluate": Script(evaluate, lambda bench: True, ("evaluation_*.json",), Bench.finished_run),
    "prepare_age": Script(
        lambda bench: ["source=imdb_wiki", f"root={bench.outputs}/imdb_wiki", "pack=16"],
        has("imdb_wiki_16.*"),
        ("imdb_wiki_16.*", "*.csv"),
        lambda bench: write_faces(bench.outputs, train=1500),
    ),
    "prepare_mini": Script(prepare_mini, has("*.jpg"), ("*.jpg", "imdb_wiki.csv")),
    "run_synthetic": Script(
        lambda bench: [f"folder={bench.outputs}", *SYNTHETIC],
        has("runs/*.npz"),
        ("synthetic.json", "runs/*.npz"),
    ),
    "reproduce": Script(reproduce, has("runs/*.npz"), ("tables/*.json", "synthetic.json")),
    "table": Script(table, has("last.pt"), ("tables/*.json",)),
}


@functools.cache
def uninterrupted(name: str, folder: Path) -> tuple[dict[str, Any], float]:
    """Return the files of a script, and the seconds from its first checkpoint to its end."""
    script, bench = SCRIPTS[name], Bench(folder)
    script.before(bench)
    running = Running(name, script.arguments(bench))
    running.wait_until(functools.partial(script.ready, bench))
    start = time.monotonic()
    done = running.wait()
    assert done.returncode == 0, done.stderr[-500:]
    return contents(script, bench), time.monotonic() - start


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        pytest.param(name, moment, marks=[pytest.mark.quick] * (name == "train" and moment < 2))
        for name in SCRIPTS
        for moment in range(MOMENTS)
    ],
)
def test_a_killed_script_resumes(
    name: str, moment: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    script, sampled = SCRIPTS[name], random.Random(moment)
    expected, span = uninterrupted(name, tmp_path_factory.getbasetemp() / f"uninterrupted_{name}")
    for trial in range(TRIES):
        bench = Bench(tmp_path / str(trial))
        script.before(bench)
        running = Running(name, script.arguments(bench))
        running.wait_until(functools.partial(script.ready, bench))
        running.process.join(sampled.uniform(0, span))
        if running.process.is_alive():
            os.kill(running.session, SIGNALS[moment % 3])
            running.process.join()
            break
    else:
        pytest.fail(f"none of {TRIES} moments fell before the end")
    assert not running.left()
    done = bench.run(name, *script.arguments(bench))
    assert done.returncode == 0, done.stderr
    assert expected
    assert contents(script, bench) == expected
    assert not bench.temporary()


def test_two_reproduce_at_once(bench: Bench, fresh: Bench):
    assert fresh.run("reproduce", *reproduce(fresh)).returncode == 0
    running = [Running("reproduce", reproduce(bench)) for _ in range(2)]
    assert [script.wait().returncode for script in running] == [0, 0]
    pair = [contents(SCRIPTS["reproduce"], b) for b in (bench, fresh)]
    assert pair[0] == pair[1]
    assert not bench.temporary()


def contents(script: Script, bench: Bench) -> dict[str, Any]:
    """Return the content of the final files, without times and keys in the names of folders."""
    found: dict[str, Any] = {}
    for pattern in script.final:
        for path in sorted(bench.outputs.rglob(pattern)):
            names = path.relative_to(bench.outputs).parts[:-1]
            folder = "/".join(name.split("-")[0] for name in names)
            found[f"{folder}/{path.name}"] = read(path)
    return found


def read(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(
            path.read_text(),
            object_pairs_hook=lambda pairs: {k: v for k, v in pairs if k not in CHANGING},
        )
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key].tobytes() for key in file if key not in CHANGING}
    if path.stem == "imdb_wiki_16":
        dataset = AgeDataset(path.with_name("imdb_wiki.csv"), path.parent, "train", 16, False, path)
        return [dataset[index]["input"].tolist() for index in range(len(dataset))]
    if path.suffix == ".pt":
        task = torch.load(path, weights_only=True)["task"]
        return {key: value.numpy().tobytes() for key, value in task.items()}
    return path.read_bytes()
