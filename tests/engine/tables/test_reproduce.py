"""One command runs every table of the paper, or those whose real data is there."""

import json
import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from engine.runs.run import CONFIGS, composed
from engine.tables import reproduce
from engine.tables.columns import table_configs
from engine.tables.reproduce import Stage, run_stages

DATASETS = sorted(path.stem for path in (CONFIGS / "dataset").glob("*.yaml"))


def config(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS / "reproduce"), version_base="1.3"):
        return compose("default", [re.sub(r"^paths\.", "++paths.", word) for word in overrides])


def test_every_table_of_the_paper_is_a_stage():
    made, skipped = reproduce.stages(config())
    paper = [name for name, table in table_configs().items() if table.get("paper")]
    paper.remove("stsb")  # whose sentences are not generated
    assert [stage.name for stage in made] == paper
    assert skipped == ["stsb: skipped, no generated data; use data=real paths.stsb=<folder>."]
    assert all(stage.minutes > 0 for stage in made)


def test_settings_of_mini_data_reach_the_run_that_generates_it():
    words = ["images=20", "bodies.counts={h36m_train:8}"]
    passed = reproduce.for_runs(config(f"prepare={json.dumps(words)}"))
    cfg = composed("train", ["experiment=imdb_wiki/bmc", *passed])
    assert (cfg.paths.suffix, cfg.paths.generate) == ("_mini", words)


def test_real_data_that_is_not_there_is_skipped_with_a_line(tmp_path: Path):
    places = [f"paths.data={tmp_path}", f"paths.outputs={tmp_path / 'out'}"]
    made, skipped = reproduce.stages(config("table=all", "data=real", *places))
    assert [stage.name for stage in made] == ["synthetic"]
    assert skipped[0] == (
        f"imdb_wiki: skipped, no data in {tmp_path}/imdb_wiki; set paths.imdb_wiki=<folder>."
    )
    with pytest.raises(SystemExit, match="Nothing to do"):
        reproduce.reproduce(config("table=[imdb_wiki]", "data=real", *places))


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_may_lie_in_a_folder_of_its_own(name: str):
    cfg = composed("train", ["experiment=imdb_wiki/bmc", f"dataset={name}", f"paths.{name}=/x"])
    assert "/x" in str(OmegaConf.to_container(cfg.dataset, resolve=True))


def test_a_failing_stage_is_named_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def fail(reach) -> None:
        print("before")
        reach(0.5)
        raise ValueError("no such file")

    def succeed(reach) -> Path:
        reach(2.0)  # more runs than expected
        return tmp_path / "x.json"

    log, found = tmp_path / "log", [Stage("bad", 1.0, fail), Stage("good", 2.0, succeed)]
    done = run_stages(found, log)
    assert done == {"good": tmp_path / "x.json"}
    bad, good = capsys.readouterr().err.splitlines()
    assert bad == f"bad: FAILED, ValueError: no such file (see {log})"
    assert good == "good: done in 0 s"
    assert "before" in log.read_text()
    assert "Traceback" in log.read_text()


@pytest.mark.parametrize("name", ["a b,c", "it's", "x=[1]", "{a: b}", "back\\\\", "q\\'", "ü ~+"])
def test_a_path_may_need_quotes(name: str, tmp_path: Path):
    folder = tmp_path / name / "imdb_wiki"
    folder.mkdir(parents=True)
    (folder / "imdb_wiki.csv").touch()
    cfg = config("table=[imdb_wiki]", "data=real")
    cfg.paths.data = str(tmp_path / name)
    made, skipped = reproduce.stages(cfg)
    assert [stage.name for stage in made] == ["imdb_wiki"]
    assert not skipped
