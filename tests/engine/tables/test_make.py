"""A table is made from its config: found or run, named, published, with the paper's numbers."""

import json
from pathlib import Path

import pytest
from omegaconf import ListConfig, OmegaConf

from datasets import nyud2
from engine import CONFIGS
from engine.runs.run import composed
from engine.tables import make
from engine.tables.table import cell
from engine.tables.tradeoff import areas
from tests.engine.tables.test_tradeoff import table
from tests.engine.tiny import tiny


@pytest.mark.parametrize("name", ["imdb_wiki", "imdb_wiki_tradeoff"])
def test_other_datasets_have_no_paper(name: str):
    own, other = (
        composed("table", [f"table={name}", "preset=laptop", f"dataset={dataset}"])
        for dataset in ("imdb_wiki", "utkface")
    )
    make.forget_other_datasets(own)
    make.forget_other_datasets(other)
    assert bool(own.table.get("paper")) == (name == "imdb_wiki")
    assert not other.table.get("paper")


@pytest.mark.parametrize("name", ["nyud2", "ihmr", "stsb"])
def test_a_dataset_with_a_csv_keeps_its_published_numbers(name: str):
    """Which dataset the numbers belong to is said by the benchmark, not by the name of a file."""
    cfg = composed("table", [f"table={name}", "++dataset.csv=mine.csv"])
    assert "paper" in cfg.table
    numbers = dict(cfg.table.paper)
    make.forget_other_datasets(cfg)
    assert dict(cfg.table.paper) == numbers
    assert make.own_name(cfg) == name


@pytest.mark.parametrize("name", sorted(p.stem for p in (CONFIGS / "benchmark").glob("*.yaml")))
def test_whose_numbers_are_cited_is_a_list(name: str):
    """A part of a name is not the name."""
    file = OmegaConf.load(CONFIGS / "benchmark" / f"{name}.yaml")
    assert isinstance(file.benchmark.cited, ListConfig)


def test_a_table_is_written_with_the_papers_numbers(
    faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    said = ["preset=laptop", "paths=mini", f"paths.outputs={tmp_path}"]
    cfg = composed("table", ["table=imdb_wiki_sigma", "seeds=2", *said])
    *paths, draws = make.make(cfg, [*said, *tiny(faces, tmp_path)])
    assert draws.name == "imdb_wiki_sigma_mini_draws.npz"
    assert [path.name for path in paths] == [
        f"imdb_wiki_sigma_mini.{ending}" for ending in ("md", "csv", "tex", "json")
    ]
    assert "Joint." in capsys.readouterr().out
    assert all("12.85" in path.read_text() for path in paths)
    content = json.loads(paths[-1].read_text())
    entry = content["rows"]["Fix. (sigma = 6)"]["bmae"]
    assert (entry["seeds"], entry["paper"]) == (2, 12.85)
    assert {"commit", "command", "machine", "seconds", "versions"} <= set(content["meta"])

    monkeypatch.setattr(make, "RESULTS", tmp_path / "results")
    readme, cfg.publish = tmp_path / "README.md", True
    readme.write_text(f"<!-- table {cfg.name} -->\nold\n<!-- end {cfg.name} -->\n")
    published = make.make(cfg, [*said, *tiny(faces, tmp_path)])
    assert published[0].read_text() in readme.read_text()
    assert "old" not in readme.read_text()


def test_a_depth_table_is_written_with_its_figures(
    rooms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(nyud2, "BLOCK", 2)
    said = ["preset=laptop", f"paths.data={rooms}", f"paths.outputs={tmp_path}"]
    cfg = composed("table", ["table=nyud2", "seeds=1", *said])
    lite = ["model.pretrained=false", "model.channels=[8,8,8]", "features.views=1"]
    few = ["trainer.epochs=1", "trainer.batch_size=4", "trainer.workers=0", "log.figures=false"]
    keep = ("Vanilla", "GAI")
    cfg.table.rows = {row: cfg.table.rows[row] for row in keep}
    paths = make.make(cfg, [*said, *lite, *few])
    written = next(path for path in paths if path.suffix == ".json")
    rows = json.loads(written.read_text())["rows"]
    assert list(rows) == list(keep)
    assert rows["GAI"]["rmse_few"]["paper"] == 1.703
    figures = {path.name for path in (tmp_path / "tables" / "figures").iterdir()}
    assert {"nyud2_panel.png", "nyud2_panel.pdf", "nyud2_gain.png", "nyud2_gain.pdf"} <= figures


def test_a_table_passes_on_what_is_for_the_runs():
    said = [
        "table=imdb_wiki",
        "preset=laptop",
        "paths.data=a",
        "~trainer.clip",
        "seeds=1",
        "name=b",
    ]
    assert make.passed_on(said) == ["preset=laptop", "paths.data=a", "~trainer.clip"]


def test_tables_of_other_datasets_have_their_names():
    cfg = composed("table", ["table=imdb_wiki_gmm", "dataset=utkface", "paths=mini"])
    assert make.own_name(cfg) == "utkface_gmm_mini"


@pytest.mark.parametrize("swept", [True, False])
def test_a_value_of_a_sweep_may_diverge(
    swept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The curve is drawn without it; a row of the table that diverged is an error."""
    content, draws = table(gain=1.0)
    content["curves"]["A"] = {"1": "A 1", "2": "A 2"} if swept else {"1": "A 1"}
    content["rows"]["A 2"] = {name: cell(["diverged"]) for name in content["rows"]["A 2"]}
    found = {**content, "areas": areas(content, draws), "draws": draws, "diverged": ["A 2"]}
    monkeypatch.setattr(make, "compare", lambda *_: {**found, "runs": {"A 1": [str(tmp_path)]}})
    said = ["table=imdb_wiki_tradeoff", f"paths.outputs={tmp_path}", "name=some"]
    cfg = composed("table", said)
    if swept:
        assert tmp_path / "tables/figures/some_curves.png" in make.make(cfg, [])
    else:
        with pytest.raises(FloatingPointError, match="these rows diverged: A 2"):
            make.make(cfg, [])
