"""train.py and evaluate.py through their configs: two seeds share a stage-1 run."""

import json
from pathlib import Path

import pytest

from engine.runs.run import composed
from scripts import evaluate, train
from tests.engine.tiny import tiny


def test_seeds_share_stage_one_and_can_be_evaluated(
    faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    row = ("experiment=imdb_wiki/bmc", "preset=laptop", *tiny(faces, tmp_path))
    for seed in (0, 1):
        train.main(composed("train", [*row, f"seed={seed}"]))
    folders = sorted((tmp_path / "imdb_wiki" / "bmc" / "laptop").iterdir())
    assert [folder.name.split("-")[0] for folder in folders] == ["seed0", "seed1"]
    assert len(list((tmp_path / "imdb_wiki" / "vanilla" / "laptop").iterdir())) == 1

    capsys.readouterr()
    words = [f"run={folders[1]}", "split=val", "accelerator=cpu", "trust=[tests]"]
    evaluate.main(composed("evaluate", words))
    assert "val/bmae" in capsys.readouterr().out
    again = json.loads((folders[1] / "evaluation_best_val.json").read_text())
    done = json.loads((folders[1] / "metrics.json").read_text())["metrics"]
    assert again["bmae"] == pytest.approx(done["val/bmae"], rel=1e-5)  # other batches
