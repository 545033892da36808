"""A table is data; its Markdown, CSV and LaTeX come from the JSON."""

import csv
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.runs import records
from engine.tables import table as tables
from engine.tables.report.render import gather

TABLE = {
    "rows": {
        "Vanilla": {"bmae": tables.cell([14.0], 13.92), "mae": tables.cell([8.0], 8.06)},
        "BMC": {"bmae": tables.cell([12.0, 13.0, 14.0], 12.69), "mae": tables.cell([math.nan])},
    },
    "meta": {},
}


def test_cell_is_mean_and_sample_deviation():
    values = [12.0, 13.0, 14.0]
    found = {"mean": 13.0, "std": 1.0, "seeds": 3, "values": values, "paper": 12.69}
    assert tables.cell(values, 12.69) == found
    assert tables.cell([math.nan, 4.0])["values"] == [None, 4.0]
    assert tables.cell([2.0])["std"] is None
    assert tables.cell([math.nan, 4.0])["mean"] == 4.0


def test_every_format_is_written_with_differences_and_replicates(tmp_path: Path, capsys):
    one = {"mean": -1.5, "seeds": [-2.0, -1.0], "images": [-3.0, -0.25], "verdict": "ahead"}
    table = TABLE | {"against": {"BMC": {"Vanilla": {"bmae": one, "mae": one}}}}
    replicates = {"BMC": {"bmae": np.arange(4.0)}}
    paths = tables.write(table, tmp_path, "imdb_wiki", replicates)
    endings = (".md", ".csv", ".tex", ".json", "_draws.npz")
    assert [path.name for path in paths] == [f"imdb_wiki{ending}" for ending in endings]
    assert records.read(paths[3], "") == table
    markdown = paths[0].read_text().splitlines()
    assert markdown[0] == "|  | bMAE (years) ↓ | MAE (years) ↓ |"
    assert markdown[3] == "| BMC | **13.00 ± 1.000 (12.69)** | **-** |"
    text = "| BMC | Vanilla | -1.500 | [-2.000, -1.000] | [-3.000, -0.250] | ahead |"
    assert text in markdown
    rows = list(csv.DictReader(paths[1].read_text().splitlines()))
    assert list(rows[2]) == ["row", "column", "mean", "std", "seeds", "paper"]
    assert list(rows[2].values()) == ["BMC", "bmae", "13.0", "1.0", "3", "12.69"]
    assert r"BMC & \textbf{13.00 $\pm$ 1.000 (12.69)} & \textbf{--}" in paths[2].read_text()
    np.testing.assert_array_equal(tables.read_replicates(paths[4])["BMC"]["bmae"], np.arange(4.0))
    tables.show(table, "title")
    assert "[-3.000, -0.250]" in capsys.readouterr().out


def test_numbers_are_shown_in_full_with_the_paper_and_the_reference(capsys):
    """On a narrow terminal, with numbers as long as they get; a cited row has no reference."""
    cell = {"mean": 212.394, "std": 14.0554, "seeds": 3, "paper": 113.9}
    cited = {"mean": None, "std": None, "seeds": 0, "paper": 130.0}
    columns = ("bpa_mpjpe", "bpa_mpjpe_tail10", "bpa_mpjpe_tail5", "bpa_mpjpe_few")
    rows = {"SPIN-RT (MMHuman3D, cited)": cell, "SPIN": cited, "PM-Net": {**cited, "paper": None}}
    table = {"rows": {row: dict.fromkeys(columns, one) for row, one in rows.items()}}
    tables.show(table, "title", reference=table)
    shown = capsys.readouterr().out
    assert "…" not in shown
    for text in ("212.39 ± 14.06", "paper 113.90", "ours", "ours 212.39", "paper 130.00"):
        assert shown.count(text) == len(columns)


def test_a_command_keeps_only_the_last_name_of_a_path(monkeypatch: pytest.MonkeyPatch):
    said = "scripts/table.py dataset.root=/home/a/nyud2 x=[/b/c,d/e] paths.outputs=outputs/f"
    kept = "python scripts/table.py dataset.root=.../nyud2 x=[.../c,d/e] paths.outputs=outputs/f"
    monkeypatch.setattr(sys, "argv", said.split())
    assert records.meta()["command"] == kept


def test_a_repository_without_a_commit_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(records, "GIT", ["git", "-C", str(tmp_path), *records.GIT[3:]])
    assert records.meta()["commit"] is None


def test_names_from_elsewhere_are_no_html_and_a_diverged_run_is_no_number():
    name = "<script>alert(1)</script> | a_b [x](y) 100%"
    diverged = tables.cell([1.0, tables.DIVERGED, 2.0], paper=3.0)
    assert (diverged["mean"], diverged["diverged"]) == (None, 1)
    table = {"rows": {name: {"bmae": tables.cell([1.0])}, "BMC": {"bmae": diverged}}, "meta": {}}
    (line,) = [line for line in tables.render(table).splitlines() if "alert" in line]
    assert "<script" not in line
    assert len(re.findall(r"(?<!\\)\|", line)) == 3  # two cells
    assert "| BMC | diverged (3.000) |" in tables.render(table)
    assert {r"a\_b", r"100\%"} <= set(tables.render(table, "tex").split())


@pytest.mark.parametrize("text", ["", "{", "null", "[1]", '{"rows": {}, "checksum": "0"}'])
def test_a_damaged_table_is_named(text: str, tmp_path: Path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json: .*Rerun that table, or remove"):
        gather(tmp_path)


def test_only_a_row_ahead_of_every_baseline_is_bold():
    verdicts = {"RRT": ["ahead"], "GAI": ["ahead", "ahead"], "BMC": ["ahead", "tie"]}
    one = {"mean": -1.0, "seeds": (-2, -0.5), "images": (-2, -0.5)}
    against = {
        row: {f"baseline {i}": {"bmae": {**one, "verdict": v}} for i, v in enumerate(of)}
        for row, of in verdicts.items()
    }
    rows = {row: {"bmae": tables.cell([11.0, 13.0])} for row in ("Vanilla", *verdicts)}
    text = tables.render({"rows": rows, "against": against})
    for row in rows:
        bold = "**" if row in ("RRT", "GAI") else ""
        assert f"| {row} | {bold}12.00 ± 1.414{bold} |" in text
    assert "**Bold**" in text
    assert "**" not in tables.render({"rows": rows})
