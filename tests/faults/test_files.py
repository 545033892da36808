"""Damaged, missing and stale files of runs: they are noticed, and the advice of the error works.

Damaged images, CSVs, packed stores and cached features: tests/datasets and tests/engine/features.
"""

from collections.abc import Callable, Sequence

import pytest
import torch

from tests.faults.bench import STAGE2, Bench, assert_refused, read_metrics

quick = pytest.mark.quick


def changed_byte(data: bytes) -> bytes:
    middle = len(data) // 3
    return data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]


CHECKPOINT = [  # None: the file is deleted
    *(lambda data, share=share: data[: int(share * len(data))] for share in (0.0, 0.3, 0.9)),
    *(changed_byte, None),
]
DAMAGE: dict[str, Sequence[Callable[[bytes], bytes] | None]] = {
    "metrics.json": [
        lambda data, text=text: text for text in (b'{"metrics": {', b"null", b"{}", b"", b"[1]")
    ],
    **dict.fromkeys(("checkpoints/last.pt", "checkpoints/best.pt"), CHECKPOINT),
    **dict.fromkeys(("predictions.npz", "config.yaml", "identity.json", "train.log"), (None,)),
    "lock": (None,),
}
QUICK = [("metrics.json", 0), ("checkpoints/best.pt", 1)]


@pytest.mark.parametrize(
    ("file", "number"),
    [
        pytest.param(file, number, marks=[quick] * ((file, number) in QUICK))
        for file, changes in DAMAGE.items()
        for number in range(len(changes))
    ],
)
def test_damaged_file_of_a_run(file: str, number: int, bench: Bench):
    """The command recomputes the run or advises rerun=true, which gives the same metrics."""
    folder, change = bench.finished_run(), DAMAGE[file][number]
    before = read_metrics(folder)
    if file != "metrics.json":  # a finished run reads no other file
        (folder / "metrics.json").unlink()
    if change is None:
        (folder / file).unlink(missing_ok=True)
    else:
        (folder / file).write_bytes(change((folder / file).read_bytes()))
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
