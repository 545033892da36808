"""Damaged, missing and stale files of runs: they are noticed, and the advice of the error works.

Damaged images, CSVs, packed stores and cached features: tests/datasets and tests/engine/features.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.faults.bench import STAGE2, Bench, assert_refused, read_metrics

quick = pytest.mark.quick


def kept(share: float) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def containing(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def changed_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(data)


def gone(path: Path) -> None:
    path.unlink(missing_ok=True)


METRICS = [containing(text) for text in ('{"metrics": {', "null", "{}", "", "[1]")]
CHECKPOINT = [kept(0.0), kept(0.3), kept(0.9), changed_byte, gone]
OTHERS = ("predictions.npz", "config.yaml", "identity.json", "train.log", "lock")
DAMAGE = [
    *(("metrics.json", number, change) for number, change in enumerate(METRICS)),
    *(("checkpoints/last.pt", number, change) for number, change in enumerate(CHECKPOINT)),
    *(("checkpoints/best.pt", number, change) for number, change in enumerate(CHECKPOINT)),
    *((name, 0, gone) for name in OTHERS),
]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        pytest.param(
            file,
            change,
            id=f"{file} {number}",
            marks=[quick] * ((file, number) in [("metrics.json", 0), ("checkpoints/best.pt", 1)]),
        )
        for file, number, change in DAMAGE
    ],
)
def test_damaged_file_of_a_run(file: str, change: Callable[[Path], object], bench: Bench):
    """The command recomputes the run or advises rerun=true, which gives the same metrics."""
    folder = bench.finished_run()
    before = read_metrics(folder)
    if file != "metrics.json":  # a finished run reads no other file
        (folder / "metrics.json").unlink()
    change(folder / file)
    done = bench.train()
    if done.returncode:
        assert_refused(done, "rerun=true")
    assert bench.train("rerun=true").returncode == 0
    assert read_metrics(folder) == before


def test_damaged_table_in_the_report(bench: Bench):
    (bench.outputs / "tables").mkdir(parents=True)
    (bench.outputs / "tables" / "imdb_wiki_mini.json").write_text('{"rows": {')
    done = bench.run("report", f"outputs={bench.outputs}")
    assert_refused(done, "imdb_wiki_mini.json", "emove")


@pytest.mark.parametrize(
    "settings", [pytest.param((), marks=quick), STAGE2], ids=["run", "features"]
)
def test_replaced_images_are_noticed(settings: tuple[str, ...], bench: Bench, fresh: Bench):
    before = bench.metrics(*settings)
    for folder in (bench.faces, fresh.faces):
        for name in ("train0.jpg", "test0.jpg"):
            (folder / name).write_bytes((folder / "train1.jpg").read_bytes())
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
