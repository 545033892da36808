"""The report has every row of the paper, and marks the origin of each number."""

import json
import re
import shutil
from pathlib import Path

import pytest

from engine.runs import records
from engine.tables import table as tables
from engine.tables.report.render import gather, render

ROOT = Path(__file__).parents[3]
# The rows of the paper's seven tables, as it prints them; one number of each, from its last column.
PAPER = {
    "synthetic": {"Vanilla": 2.570, "Reweight": 1.001, "GAI (true noise)": 0.011}
    | {"BMC (true noise)": 0.011, "GAI": 0.006, "BMC": 0.011},
    "imdb_wiki": {"Vanilla": 26.33, "RRT": 25.13, "RRT+LDS": 24.64, "BMC": 23.29, "GAI": 23.05},
    "nyud2": {"Vanilla": 0.570, "Vanilla+LDS": 0.630, "BNI": 0.723, "GAI": 0.715},
    "ihmr": {"SPIN": 130.6, "PM-Net": 126.4, "SPIN-RT": 76.66, "BMC": 76.35, "GAI": 74.35},
    "imdb_wiki_sigma": {"Fix. (sigma = 6)": 23.78, "Fix. (sigma = 7)": 23.25}
    | {"Fix. (sigma = 8)": 22.94, "Joint.": 23.05},
    "imdb_wiki_gmm": {"K=1": 23.17, "K=2": 23.05, "K=4": 23.03, "K=128": 23.18},
    "compute": {"RRT": 6502, "LDS": 6502, "GAI (K=2)": 6502, "GAI (K=512)": 6512, "BMC": 6504},
}


@pytest.fixture(scope="module")
def committed() -> dict:
    return {section.name: section for section in gather(ROOT / "results")}


@pytest.mark.parametrize("name", PAPER)
def test_every_row_of_the_paper_is_cited(name: str, committed: dict):
    for method, number in PAPER[name].items():
        names = method, f"{method} (cited)"
        rows = [row for row in committed[name].rows if row.mark == "cited" and row.method in names]
        assert [number in [cell["mean"] for cell in row.cells.values()] for row in rows] == [True]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A small results folder: mini and real ages, and another dataset of the same table."""
    meta = records.meta(3.0) | {"command": "python scripts/table.py <b>"}
    table = {
        "rows": {
            "Vanilla": {"bmae": tables.cell([14.0], 13.92)},
            "GAI": {"bmae": tables.cell([12.0, 13.0, 14.0], 12.66)},
        },
        "extras": {"FDS": {"bmae": tables.cell([11.5, 12.5])}},
    }
    poses = {"table": "imdb_wiki", "command": "table.py table=ihmr paths=mini paths.suffix=_cmu"}
    own = {"imdb_wiki_mini": {}, "imdb_wiki": {}, "cmu": poses, "new_thing": {}}
    own |= {"utkface": {"table": "imdb_wiki"}}
    for name, more in own.items():
        content = {**table, "meta": {**meta, **more}}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "speed.json").write_text('{"losses": []}')
    (tmp_path / "figures").mkdir()
    picture = next((ROOT / "results" / "figures").glob("*.png")).read_bytes()
    for name in ("imdb_wiki_mini_gain", "new_thing_curve", "forest"):
        (tmp_path / "figures" / f"{name}.png").write_bytes(picture)
    return tmp_path


def test_measurements_find_their_tables(results: Path, tmp_path: Path):
    own = tmp_path / "outputs" / "tables"
    own.mkdir(parents=True)
    (own / "imdb_wiki_mini.json").write_text((results / "imdb_wiki_mini.json").read_text())
    sections = {section.name: section for section in gather(results, tmp_path / "outputs")}
    ages = sections["imdb_wiki"]
    assert [source.provenance["seeds"] for source in ages.sources] == ["1 to 3"] * 5
    assert [(row.mark, row.origin) for row in ages.rows if row.method == "GAI"] == [
        ("cited", "paper"),
        ("mini", "cmu"),  # real labels on generated images
        ("real", "imdb_wiki"),
        ("mini", "imdb_wiki_mini"),
        ("real", "utkface"),
        ("mini", "imdb_wiki_mini (this machine)"),
    ]
    plotted = {source.name: list(source.figures) for source in ages.sources if source.figures}
    assert plotted == {"imdb_wiki_mini": ["gain"]}
    assert [row.method for row in sections["new_thing"].rows] == ["Vanilla", "GAI", "FDS"]
    assert list(sections["new_thing"].sources[0].figures) == ["curve"]


def test_page_and_markdown_show_numbers_and_provenance(results: Path, tmp_path: Path):
    path, tag = results / "new_thing.json", "`<img src=x>` ![x](y) |"
    content = json.loads(path.read_text())
    content["meta"] |= {"command": tag, "machine": tag, "commit": "<b>"}
    path.write_text(json.dumps(content))
    figure = results / "figures" / "new_thing_curve.png"
    figure.rename(figure.with_name("new_thing_](z) <img>.png"))
    sections, meta = gather(results), records.meta()
    page, text = (render(f"page.{x}", sections, meta, folder=tmp_path) for x in ("html", "md"))
    assert "| GAI | mini | imdb_wiki_mini | 13.00 ± 1.000 |" in text
    assert "| GAI | cited | paper | 12.66 |" in text
    assert "13.00<small> ± 1.000</small>" in page
    for shown in (page, text):
        assert str(meta["commit"])[:10] in shown
        assert "imdb_wiki_mini_gain" in shown
    assert "data:image/png;base64," in page
    # foreign names are escaped
    assert "&lt;img src=x&gt;" in page
    own = text.partition("## new_thing")[2]
    assert not re.search(r"<img|<b>|(?<!\\)`|(?<!\\)!\[x|(?<!\\)\]\(z", own)
    assert "figures/new_thing_%5D%28z%29%20%3Cimg%3E.png" in own


def test_the_page_has_every_table_and_is_self_contained(committed: dict):
    page = render("page.html", list(committed.values()), records.meta())
    for name in ("leaderboard", *PAPER):
        section = page.split(f'<section id="{name}">')[1].split("</section>")[0]
        assert '<table class="sortable">' in section
    outside = re.findall(r"""(?:src|href)=["'](?!data:|#)([^"']+)""", page)
    assert not outside
    assert not re.findall(r"url\((?!#)|@import|fetch\(|XMLHttpRequest", page)


def test_a_figure_that_is_a_link_is_left_out(results: Path, tmp_path: Path):
    for name in ("tables", "more"):
        (tmp_path / "outputs" / name).mkdir(parents=True)
        shutil.copy(results / "new_thing.json", tmp_path / "outputs" / name)
    (tmp_path / "outputs" / "tables" / "figures").mkdir()
    link = tmp_path / "outputs" / "tables" / "figures" / "new_thing_secret.png"
    link.symlink_to(results / "speed.json")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "new_thing_more.png").touch()
    (tmp_path / "outputs" / "more" / "figures").symlink_to(tmp_path / "secret")
    sections = {section.name: section for section in gather(results, tmp_path / "outputs")}
    plotted = [list(source.figures) for source in sections["new_thing"].sources]
    assert plotted == [["curve"], [], []]
