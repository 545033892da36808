"""Run folders, checkpoints and tables that were made to do harm: nothing is executed."""

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

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
