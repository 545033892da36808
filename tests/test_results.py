"""The committed numbers support the claims of the README."""

import json
import re
from pathlib import Path

import pytest

from engine.tables.columns import benchmark_of
from engine.tables.intervals import compared
from engine.tables.table import REPLICATES, read_replicates
from engine.tables.tradeoff import areas
from synthetic.benchmark.jobs import METHODS
from synthetic.benchmark.problems import TABLE

ROOT = Path(__file__).parents[1]
DEPTH = ["Vanilla", "Vanilla+LDS", "BNI", "GAI", "Histogram"]
ROWS = json.loads((ROOT / "results/synthetic.json").read_text())["rows"]


@pytest.mark.parametrize("problem", TABLE, ids=lambda p: p.name)
def test_vanilla_is_the_closed_form_and_balanced_mse_is_far_below(problem):
    assert list(ROWS) == list(METHODS)
    cells = {row: of_row[problem.name] for row, of_row in ROWS.items()}
    assert all(cell["seeds"] >= 10 and cell["paper"] is not None for cell in cells.values())
    assert cells["Vanilla"]["mean"] == pytest.approx(problem.least_squares_mse(), rel=0.12)
    for row in ("GAI (true noise)", "BMC (true noise)", "GAI", "BMC"):
        assert cells[row]["mean"] < cells["Reweight"]["mean"]
        assert cells[row]["mean"] < cells["Vanilla"]["mean"] / 10


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.stem
)
def test_no_folder_of_one_machine_is_named(path: Path):
    content = json.loads(path.read_text())
    groups = [one for name, one in content.items() if name != "checksum"]  # of speed.json
    for meta in [content["meta"]] if "meta" in content else [one["meta"] for one in groups]:
        runs = (folder for of_row in meta.get("runs", {}).values() for folder in of_row)
        assert not [text for text in (meta["command"], *runs) if re.search(r"(^|[\s=\[,])/", text)]


@pytest.mark.parametrize(("name", "seeds"), [("nyud2_mini", 3), ("nyud2_labeled", 5)])
def test_balanced_depth_rows_are_better_than_vanilla(name: str, seeds: int):
    rows = json.loads((ROOT / "results" / f"{name}.json").read_text())["rows"]
    assert list(rows)[: len(DEPTH)] == DEPTH  # post-hoc rows may follow
    assert all(cell["seeds"] == seeds for cells in rows.values() for cell in cells.values())
    for row in ("BNI", "GAI", "Histogram"):
        for column in ("rmse", "rmse_few"):
            assert rows[row][column]["mean"] < rows["Vanilla"][column]["mean"]
    for kind in ("panel", "gain"):
        assert (ROOT / "results" / "figures" / f"{name}_{kind}.png").is_file()


COMPARED = [
    path
    for path in sorted((ROOT / "results").glob("*.json"))
    if "against" in json.loads(path.read_text())
]


@pytest.mark.parametrize("path", COMPARED, ids=lambda path: path.stem)
def test_intervals_follow_from_the_stored_values(path: Path):
    """Recompute every interval from the stored values and replicates."""
    content = json.loads(path.read_text())
    replicates = read_replicates(path.parent / (path.stem + REPLICATES))
    benchmark = benchmark_of(path.stem, content)
    again = json.loads(json.dumps(compared(content, replicates, benchmark)["against"]))
    assert again.keys() == content["against"].keys()
    for row, others in content["against"].items():
        for baseline, columns in others.items():
            for name, stored in columns.items():
                close_to(again[row][baseline][name], stored)
    if "areas" in content:
        for method, found in areas(content, replicates).items():
            stored = content["areas"][method]
            assert found["mean"] == pytest.approx(stored["mean"], rel=1e-6)
            for other, difference in stored["against"].items():
                close_to(json.loads(json.dumps(found["against"][other])), difference)


def close_to(found, stored):
    """Replicates are stored in float32: seven digits of the metrics, i.e. of tens."""
    assert found["pairs"] == stored["pairs"]
    for key in ("seeds", "images"):
        assert (found[key] is None) == (stored[key] is None)
        if stored[key] is not None:
            assert found[key] == pytest.approx(stored[key], rel=1e-4, abs=1e-4)
    ends = [end for key in ("seeds", "images") for end in stored[key] or ()]
    if ends and min(map(abs, ends)) > 1e-4:
        assert found["verdict"] == stored["verdict"]
