"""The README's commands on mini data generate what is missing, once, and nothing else does."""

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from engine import ROOT
from engine.benchmarks.prepare import generate_missing
from engine.runs.run import composed
from tests.engine.tiny import COMMON, MODEL, SIZE

SMALL = f"paths.generate={json.dumps(['images=120', f'size={SIZE}', 'cap=2'])}"
SHORT = [*COMMON, f"dataset.size={SIZE}", *MODEL, "trainer.epochs=1", "trainer.batch_size=24"]
TABLE = ["trust=[tests]", "rows=[Vanilla]", "seeds=1", "table.figures=null"]
TABLE += [f"overrides={json.dumps(SHORT)}"]


def test_the_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In an empty folder, in order."""
    found = re.findall(
        r"`python scripts/(\w+)\.py (.*paths=mini.*?)`", (ROOT / "README.md").read_text()
    )
    assert [script for script, _ in found] == ["table", "train"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    times = set()
    for (script, words), own in zip(found, (TABLE, SHORT), strict=True):
        monkeypatch.setattr(sys, "argv", [script, *shlex.split(words), SMALL, *own])
        importlib.import_module(f"scripts.{script}").main()
        times.add(Path("outputs/mini/imdb_wiki/imdb_wiki.csv").stat().st_mtime_ns)
    assert len(times) == 1
    assert {path.parents[2].name for path in Path().rglob("metrics.json")} == {"vanilla", "bmc"}


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["experiment=nyud2/bni", "paths=mini"], "nyud2/nyu2_train.csv"),
        (["experiment=ihmr/bmc", "paths=mini"], "ihmr/h36m_train.npz"),
        (["experiment=imdb_wiki/bmc"], None),  # real data
        (["experiment=imdb_wiki/bmc", "dataset=utkface", "paths=mini"], None),
    ],
)
def test_other_mini_data(words: list[str], file: str | None, tmp_path: Path):
    cfg = composed("train", ["preset=laptop", f"paths.data={tmp_path}", *words])
    if file is not None:
        cfg.paths.generate = ["rooms.train=2", "rooms.test=2", "bodies.size=32"]
        cfg.paths.generate += ["bodies.counts={h36m_train:8,coco_2014_train:8,3dpw_test:8}"]
    for _ in range(2):
        generate_missing(cfg)
    assert (tmp_path / file).is_file() if file else not list(tmp_path.iterdir())
