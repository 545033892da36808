"""The comparison tells equal from different, on clones that the tests write themselves."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import datasets
from engine.runs.run import composed
from scripts import compare_released
from scripts.released import report
from scripts.released.clones import Clone, Missing
from scripts.released.compare import compare
from scripts.released.lines import Line, Lines, reasons

ROOT = Path(__file__).parents[2]
# A baseline's errors as a reference repository would write them, with what is gone since.
LOSSES = """
import numpy
import torch
from tensorboard_logger import Logger

numpy.float

def weighted(error):
    def loss(inputs, targets, weights):
        gap = (inputs - targets).abs().cuda()
        return torch.mean(torch.tensor(SCALE, device="cuda") * error(gap) * weights)
    return loss

focus = lambda gap: 2 * torch.sigmoid(0.2 * gap) - 1
weighted_mse_loss = weighted(lambda gap: gap ** 2)
weighted_l1_loss = weighted(lambda gap: gap)
weighted_focal_mse_loss = weighted(lambda gap: gap ** 2 * focus(gap))
weighted_focal_l1_loss = weighted(lambda gap: gap * focus(gap))
weighted_huber_loss = weighted(lambda gap: torch.where(gap < 1, gap ** 2 / 2, gap - 0.5))
"""
CHECK = "age.weighted_losses"


def write_clone(folder: Path, scale: float = 1.0, more: str = "") -> Path:
    (folder / "imdb-wiki-dir").mkdir(parents=True)
    code = LOSSES.replace("SCALE", str(scale)) + more
    (folder / "imdb-wiki-dir" / "loss.py").write_text(code)
    return folder


def compared(clone: Path | None, only: str = CHECK) -> tuple[list[Line], list[str]]:
    parts = ["age"]
    return compare({"one": {"url": "someone/losses", "clone": clone, "parts": parts}}, only)


def test_code_that_does_the_same_is_equal(tmp_path: Path):
    found, skipped = compared(write_clone(tmp_path))
    assert len(found) == 5
    assert {line.verdict for line in found} == {"equal"}
    assert not skipped


def test_a_difference_of_a_thousandth_is_found(tmp_path: Path):
    found, _ = compared(write_clone(tmp_path, scale=1.001))
    assert {line.verdict for line in found} == {"DIFFERENT"}
    assert [line.difference for line in found] == pytest.approx([1e-3] * 5, rel=1e-2)


def test_what_is_missing_is_skipped_by_name(tmp_path: Path):
    assert compared(None)[1] == ["someone/losses: no clone given"]
    found, skipped = compared(write_clone(tmp_path), "age.losses")
    assert not found
    assert skipped == ["someone/losses, age.losses: no module balanaced_mse"]
    _, skipped = compared(write_clone(tmp_path / "other", more="import a_package_of_old"))
    assert "no module a_package_of_old, which its loss needs" in skipped[0]
    _, skipped = compared(tmp_path / "other" / "imdb-wiki-dir")
    assert "no folder imdb-wiki-dir" in skipped[0]


def test_code_that_breaks_is_a_failure_not_a_skip(tmp_path: Path):
    found, skipped = compared(write_clone(tmp_path, more="\nweighted_l1_loss = None\n"))
    assert found[-1].verdict.startswith("FAILED: TypeError")
    assert not found[-1].explained
    assert not skipped


@pytest.mark.parametrize(("scale", "code"), [(1.0, None), (1.1, 1)])
def test_the_exit_code_and_what_is_published(
    scale: float,
    code: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
):
    monkeypatch.setattr(compare_released, "ROOT", tmp_path)
    clone = write_clone(tmp_path / "clone", scale)
    cfg = composed("compare_released", [f"balanced_mse={clone}", f"only={CHECK}", "publish=true"])
    if code is None:
        compare_released.main(cfg)
    else:
        with pytest.raises(SystemExit) as stopped:
            compare_released.main(cfg)
        assert stopped.value.code == code
    said = capsys.readouterr().out
    assert "skipped: nkolot/SPIN: no clone given" in said
    content = json.loads((tmp_path / "results" / "fidelity.json").read_text())
    assert len(content["lines"]) == 5
    assert str(tmp_path) not in json.dumps(content)  # nobody else has that folder
    page = (tmp_path / "docs" / "fidelity.md").read_text()
    assert page == report.markdown(content)
    assert ("DIFFERENT" in page) == (code == 1)


def test_the_modules_of_a_clone_do_not_take_the_place_of_ours(tmp_path: Path):
    (tmp_path / "datasets.py").write_text("from utils import number\nmine = number + 1\n")
    (tmp_path / "utils.py").write_text("number = 41\n")
    path = list(sys.path)
    clone = Clone(tmp_path)
    assert clone.load("datasets").mine == 42
    assert sys.modules["datasets"] is datasets
    assert "utils" not in sys.modules
    assert sys.path == path
    with pytest.raises(Missing, match="no module nothing"):
        clone.load("nothing")


def test_a_deviation_counts_if_it_is_listed_and_not_larger():
    line = Line("one/two", "images", 0.01, 1e-6, deviation="Resizing", bound=0.05)
    assert line.verdict == "deviation: Resizing"
    line.difference = 0.06
    assert line.verdict.startswith("DIFFERENT: Resizing explains at most")
    line.difference, line.deviation = 0.01, "Nothing of the kind"
    assert "does not list" in line.verdict
    line.difference = 1e-7
    assert line.verdict == "equal"


def test_reasons_are_the_named_entries_of_the_protocol(tmp_path: Path):
    page = tmp_path / "protocol.md"
    page.write_text(
        "# A\n\n- *One* (preset): first\n  and second.\n- Two: no name.\n- *Three*: x\n"
    )
    assert reasons(page) == {"One": "first and second.", "Three": "x"}


def test_differences_are_by_the_scale_of_each_entry():
    lines = Lines("one/two")
    lines.add("large and small", [np.array([1e6]), 1.0], [np.array([1e6]), 1.1], 1e-3)
    lines.add("shapes", np.zeros(3), np.zeros(4), 1e-3)
    lines.add("numbers", {"a": np.nan, "b": 1.0}, {"a": np.nan, "b": 1.0}, 0.0)
    lines.same("lists", ["x", "y"], ["x", "z"])
    sizes = [line.difference for line in lines.found]
    assert sizes == [pytest.approx(0.1 / 1.1), np.inf, 0.0, 1.0]


def test_the_page_is_made_of_the_published_file():
    content = json.loads((ROOT / "results" / "fidelity.json").read_text())
    page = (ROOT / "docs" / "fidelity.md").read_text()
    assert page == report.markdown(content), "publish it again"
    assert len(content["lines"]) >= 40
    kinds = {line["verdict"].partition(":")[0] for line in content["lines"]}
    assert kinds == {"equal", "deviation"}
