"""What one command runs: every table of the paper, or what real data is there."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from engine.runs.run import CONFIGS, composed
from engine.tables import reproduce
from engine.tables.report import table_configs
from scripts.command import freed

DATASETS = sorted(path.stem for path in (CONFIGS / "dataset").glob("*.yaml"))


def config(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS / "reproduce"), version_base="1.3"):
        return compose("default", [freed(text, "paths") for text in overrides])


def test_every_table_of_the_paper_is_a_part():
    made, skipped = reproduce.parts(config())
    paper = [name for name, table in table_configs().items() if table.get("paper")]
    paper.remove("stsb")  # whose sentences are not generated
    assert [part.name for part in made] == ["mini datasets", *paper]
    assert skipped == [
        "stsb: skipped, there are no generated data of it; with its own: data=real "
        "paths.stsb=<their folder>."
    ]
    assert all(part.seconds > 0 for part in made)


def test_real_data_that_is_not_there_is_skipped_with_a_line(faces: Path, tmp_path: Path):
    there = [f"paths.imdb_wiki={faces / 'imdb_wiki'}", f"paths.data={tmp_path}", "data=real"]
    made, skipped = reproduce.parts(config("table=[imdb_wiki]", *there))
    assert [part.name for part in made] == ["imdb_wiki"]
    assert not skipped
    made, skipped = reproduce.parts(config("table=all", "data=real", f"paths.data={tmp_path}"))
    assert [part.name for part in made] == ["synthetic"]
    assert skipped[0] == (
        f"imdb_wiki: skipped, no data in {tmp_path}/imdb_wiki; give paths.imdb_wiki=<its folder>."
    )


def test_it_fails_where_there_is_no_data_at_all(tmp_path: Path):
    places = [f"paths.data={tmp_path}", f"paths.outputs={tmp_path / 'out'}"]
    with pytest.raises(SystemExit, match="nothing could be done"):
        reproduce.reproduce(config("table=[imdb_wiki]", "data=real", *places))


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_may_lie_in_a_folder_of_its_own(name: str):
    cfg = composed("train", ["experiment=imdb_wiki/bmc", f"dataset={name}", f"paths.{name}=/x"])
    assert "/x" in str(OmegaConf.to_container(cfg.dataset, resolve=True))


def test_wrong_names_are_refused():
    with pytest.raises(SystemExit, match=r"table: nonsense unknown; choose out of all, synthetic"):
        reproduce.parts(config("table=nonsense"))
    with pytest.raises(SystemExit, match="data: expected mini or real, got big"):
        reproduce.parts(config("data=big"))
    with pytest.raises(SystemExit, match=r"paths: imdb unknown; choose out of agedb, .*utkface"):
        reproduce.parts(config("paths.imdb=/x"))
