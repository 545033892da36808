"""The README's commands on mini data run in an empty folder, in order, and generate the data."""

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from engine import ROOT
from engine.benchmarks.mini import generate_missing
from engine.runs.run import composed
from tests.engine.tiny import COMMON, MODEL, SIZE

SMALL = f"paths.generate={json.dumps(['images=120', f'size={SIZE}', 'cap=2'])}"
SHORT = [*COMMON, f"dataset.size={SIZE}", *MODEL, "trainer.epochs=1", "trainer.batch_size=24"]
ROWS = {
    "table": [
        "trust=[tests]",
        "rows=[Vanilla]",
        "seeds=1",
        "table.figures=null",
        f"overrides={json.dumps(SHORT)}",
    ]
}
CSV = Path("outputs/mini/imdb_wiki/imdb_wiki.csv")


def test_the_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = re.findall(
        r"`python scripts/(\w+)\.py (.*paths=mini.*?)`", (ROOT / "README.md").read_text()
    )
    assert [script for script, _ in found] == ["table", "train"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    times = []
    for script, words in found:
        own = ROWS.get(script, SHORT)
        monkeypatch.setattr(sys, "argv", [script, *shlex.split(words), SMALL, *own])
        importlib.import_module(f"scripts.{script}").main()
        times.append(CSV.stat().st_mtime_ns)
    assert len(set(times)) == 1
    assert {path.parents[2].name for path in Path().rglob("metrics.json")} == {"vanilla", "bmc"}


def test_other_mini_data(tmp_path: Path):
    sizes = ["rooms.train=2", "rooms.test=2", "bodies.size=32"]
    sizes.append("bodies.counts={h36m_train:8,coco_2014_train:8,3dpw_test:8}")
    for experiment, file in (("nyud2/bni", "nyu2_train.csv"), ("ihmr/bmc", "h36m_train.npz")):
        words = [
            f"experiment={experiment}",
            "preset=laptop",
            "paths=mini",
            f"paths.data={tmp_path}",
        ]
        cfg = composed("train", words)
        cfg.paths.generate = sizes
        for _ in range(2):
            generate_missing(cfg)
        assert (tmp_path / experiment.split("/")[0] / file).is_file()


def test_real_data_is_never_generated(tmp_path: Path):
    generate_missing(composed("train", ["experiment=imdb_wiki/bmc", f"paths.data={tmp_path}"]))
    utkface = ["experiment=imdb_wiki/bmc", "dataset=utkface", "paths=mini"]
    generate_missing(composed("train", [*utkface, f"paths.data={tmp_path}"]))
    assert not list(tmp_path.iterdir())
