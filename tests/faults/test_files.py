"""Damaged, stale and missing files: the error names them, and its advice works.

Damage of packed stores and cached features: tests/datasets/io/test_store.py and
tests/engine/features.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.faults.bench import STAGE2, Bench, assert_refused, read_metrics

quick = pytest.mark.quick
METRICS = {"cut": '{"metrics": {', "null": "null", "{}": "{}", "empty": "", "a list": "[1]"}


def kept(share: float) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def changed_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(data)


CHECKPOINTS = {
    "empty": kept(0.0),
    "kept to 30%": kept(0.3),
    "kept to 90%": kept(0.9),
    "with a changed byte": changed_byte,
    "gone": Path.unlink,
}


@pytest.mark.parametrize(
    "text",
    [pytest.param(METRICS[name], id=name, marks=[quick] * (name == "cut")) for name in METRICS],
)
def test_damaged_metrics(text: str, bench: Bench):
    folder = bench.finished_run()
    before = read_metrics(folder)
    (folder / "metrics.json").write_text(text)
    assert_recomputed(bench, folder, before)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        pytest.param(file, name, marks=[quick] * (file == "best.pt" and name == "kept to 30%"))
        for file in ("last.pt", "best.pt")
        for name in CHECKPOINTS
    ],
)
def test_damaged_checkpoint(file: str, damage: str, bench: Bench):
    folder = bench.finished_run()
    before = read_metrics(folder)
    (folder / "metrics.json").unlink()
    CHECKPOINTS[damage](folder / "checkpoints" / file)
    assert_recomputed(bench, folder, before)


@pytest.mark.parametrize(
    "file", ["predictions.npz", "config.yaml", "identity.json", "train.log", "lock"]
)
def test_missing_file(file: str, bench: Bench):
    folder = bench.finished_run()
    before = read_metrics(folder)
    (folder / "metrics.json").unlink()
    (folder / file).unlink(missing_ok=True)
    assert_recomputed(bench, folder, before)


def assert_recomputed(bench: Bench, folder: Path, before: dict[str, float]) -> None:
    """The command recomputes the run or advises rerun=true, which gives the same metrics."""
    done = bench.train()
    if done.returncode:
        assert_refused(done, "rerun=true")
    assert bench.train("rerun=true").returncode == 0
    assert read_metrics(folder) == before


IMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut in its header": lambda path: path.write_bytes(path.read_bytes()[:30]),
    "text": lambda path: path.write_text("no image"),
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link to another file": lambda path: (path.unlink(), path.symlink_to("/etc/hosts")),
}


@pytest.mark.parametrize("damage", IMAGES)
def test_damaged_image(damage: str, bench: Bench):
    IMAGES[damage](bench.faces / "train0.jpg")
    assert_refused(bench.train(), "train0.jpg")


def test_damaged_table_in_the_report(bench: Bench):
    (bench.outputs / "tables").mkdir(parents=True)
    (bench.outputs / "tables" / "imdb_wiki_mini.json").write_text('{"rows": {')
    done = bench.run("report", f"outputs={bench.outputs}")
    assert_refused(done, "imdb_wiki_mini.json", "emove")


def replace_images(bench: Bench) -> None:
    for name in ("train0.jpg", "test0.jpg"):
        (bench.faces / name).write_bytes((bench.faces / "train1.jpg").read_bytes())


@pytest.mark.parametrize(
    "settings", [pytest.param((), marks=quick), STAGE2], ids=["run", "features"]
)
def test_replaced_images_are_noticed(settings: tuple[str, ...], bench: Bench, fresh: Bench):
    before = bench.metrics(*settings)
    replace_images(bench)
    replace_images(fresh)
    done = bench.train(*settings)
    assert done.returncode == 0
    assert "images" in done.stderr
    assert bench.metrics(*settings) == fresh.metrics(*settings) != before


def test_a_changed_stage_1_is_noticed(bench: Bench):
    before = bench.metrics(*STAGE2)
    (path,) = bench.outputs.glob("imdb_wiki/vanilla/*/*/checkpoints/best.pt")
    content = torch.load(path, weights_only=True)
    for tensor in content["task"].values():
        tensor.copy_(1.5 * tensor)
    torch.save(content, path)
    done = bench.train(*STAGE2)
    assert done.returncode == 0
    assert "stage 1 changed" in done.stderr
    assert bench.metrics(*STAGE2) != before


def test_resuming_from_another_run_does_not_change_the_plain_run(bench: Bench, fresh: Bench):
    expected = fresh.metrics("trainer.epochs=4")
    fresh.metrics("seed=1")
    (path,) = fresh.outputs.glob("imdb_wiki/vanilla/*/seed1-*/checkpoints/last.pt")
    other = bench.metrics("trainer.epochs=4", f"resume={path}")
    assert bench.metrics("trainer.epochs=4") == expected != other
