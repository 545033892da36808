"""The committed numbers keep the promises that the README makes of them."""

import json
import re
from pathlib import Path

import pytest

from synthetic.methods import METHODS
from synthetic.problems import TABLE

ROOT = Path(__file__).parents[1]
ROWS = json.loads((ROOT / "results/synthetic.json").read_text())["rows"]


def test_every_cell_of_the_paper_is_there_with_ten_seeds():
    assert list(ROWS) == list(METHODS)
    for cells in ROWS.values():
        assert list(cells) == [problem.name for problem in TABLE]
        for cell in cells.values():
            assert cell["seeds"] >= 10
            assert cell["paper"] is not None


@pytest.mark.parametrize("problem", TABLE, ids=lambda p: p.name)
def test_vanilla_is_the_closed_form_and_balanced_mse_is_far_below(problem):
    means = {row: cells[problem.name]["mean"] for row, cells in ROWS.items()}
    assert means["Vanilla"] == pytest.approx(problem.least_squares_mse(), rel=0.12)
    for row in ("GAI (true noise)", "BMC (true noise)", "GAI", "BMC"):
        assert means[row] < means["Reweight"]
        assert means[row] < means["Vanilla"] / 10


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.stem
)
def test_no_folder_of_one_machine_is_named(path: Path):
    meta = json.loads(path.read_text())["meta"]
    places = [meta["command"], *(p for of_row in meta.get("runs", {}).values() for p in of_row)]
    assert not [text for text in places if re.search(r"(^|[\s=\[,])/", text)]
