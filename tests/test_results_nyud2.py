"""The committed depth numbers keep the promises that the README makes of them."""

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "results"
ROWS = ["Vanilla", "Vanilla+LDS", "BNI", "GAI", "Histogram"]


@pytest.mark.parametrize(("name", "seeds"), [("nyud2_mini", 3), ("nyud2_labeled", 5)])
def test_balanced_rows_are_ahead_of_vanilla(name: str, seeds: int):
    rows = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    assert list(rows) == ROWS
    assert all(cell["seeds"] == seeds for cells in rows.values() for cell in cells.values())
    for row in ("BNI", "GAI", "Histogram"):
        for column in ("rmse", "rmse_few"):
            assert rows[row][column]["mean"] < rows["Vanilla"][column]["mean"]
    for kind in ("panel", "gain"):
        assert (RESULTS / "figures" / f"{name}_{kind}.png").is_file()
