"""What a finished run was made of has changed since: its numbers are made again."""

import json
from pathlib import Path

import torch

from tests.faults.bench import Bench
from tests.faults.fault import STAGE2, Fault, beginning


def stale() -> list[Fault]:
    return [
        Fault("file", "images replaced after a run", replaced, True),
        Fault("file", "images replaced after their features", replaced_features),
        Fault("file", "stage 1 trained again", stage1),
        Fault("file", "another run's checkpoint to go on from", resumed),
    ]


def numbers(bench: Bench, *settings: str) -> dict[str, float]:
    """What a run of these settings prints of, found or made."""
    done = bench.train(*settings)
    assert done.code == 0, done.err
    return json.loads((Path(done.out.splitlines()[0]) / "metrics.json").read_text())["metrics"]


def replace(bench: Bench) -> None:
    faces = bench.data / "imdb_wiki" / "faces"
    for name in ("train0.jpg", "test0.jpg"):
        (faces / name).write_bytes((faces / "train1.jpg").read_bytes())


def made_again(bench: Bench, before: dict[str, float], *settings: str) -> tuple[str, bool, bool]:
    """The old numbers are not given, but those of a bench that has never seen the old images."""
    fresh = Bench(bench.folder / "fresh")
    replace(fresh)
    expected = numbers(fresh, *settings)
    again = bench.train(*settings)
    lost = numbers(bench, *settings) != expected
    good = again.code == 0 and "run again, as images" in again.err and expected != before
    return f"exit {again.code}: {beginning(again.err)}", lost, good and not lost


def replaced(bench: Bench) -> tuple[str, bool, bool]:
    before = numbers(bench)
    replace(bench)
    return made_again(bench, before)


def replaced_features(bench: Bench) -> tuple[str, bool, bool]:
    before = numbers(bench, *STAGE2)
    replace(bench)
    return made_again(bench, before, *STAGE2)


def stage1(bench: Bench) -> tuple[str, bool, bool]:
    """Other weights in its checkpoint: stage 2 is not found, but trained on them."""
    before = numbers(bench, *STAGE2)
    (path,) = bench.outputs.glob("imdb_wiki/vanilla/*/*/checkpoints/best.pt")
    content = torch.load(path, weights_only=True)
    for tensor in content["task"].values():
        tensor.copy_(1.5 * tensor)
    torch.save(content, path)
    again = bench.train(*STAGE2)
    good = again.code == 0 and "run again, as stage 1 changed" in again.err
    good = good and numbers(bench, *STAGE2) != before
    return f"exit {again.code}: {beginning(again.err)}", not good, good


def resumed(bench: Bench) -> tuple[str, bool, bool]:
    """The plain command afterwards gives the numbers of a plain command."""
    fresh = Bench(bench.folder / "fresh")
    expected = numbers(fresh, "trainer.epochs=4")
    numbers(fresh, "seed=1")
    (path,) = fresh.outputs.glob("imdb_wiki/vanilla/*/seed1-*/checkpoints/last.pt")
    other = numbers(bench, "trainer.epochs=4", f"resume={path}")
    after = numbers(bench, "trainer.epochs=4")
    good = after == expected != other
    return f"the plain run's own numbers {after == expected}", not good, good
