"""The comparison with the released code, on clones that the tests write."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets
from engine.runs.run import composed
from scripts import compare_released
from scripts.released.clones import Clone, Missing
from scripts.released.compare import RULES, compare, difference, line, markdown

ROOT = Path(__file__).parents[2]
# Errors of a baseline as a reference repository would write them, with names that are gone since.
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
CHECK = "losses.weighted_losses"


def write_clone(folder: Path, scale: float = 1.0, more: str = "") -> Path:
    (folder / "imdb-wiki-dir").mkdir(parents=True)
    code = LOSSES.replace("SCALE", str(scale)) + more
    (folder / "imdb-wiki-dir" / "loss.py").write_text(code)
    return folder


def compared(clone: Path | None, only: str = CHECK) -> tuple[list[dict[str, Any]], list[str]]:
    repositories = {
        "one": {"url": "someone/losses", "checks": {"losses": ["losses", "weighted_losses"]}}
    }
    report = compare(repositories, {"one": clone}, only)
    return report["lines"], report["skipped"]


def test_missing_clones_modules_and_packages_are_skipped(tmp_path: Path):
    assert compared(None)[1] == ["someone/losses: no clone given"]
    found, skipped = compared(write_clone(tmp_path), "losses.losses")
    assert not found
    assert skipped == ["someone/losses, losses.losses: no module balanaced_mse"]
    _, skipped = compared(write_clone(tmp_path / "other", more="import a_package_of_old"))
    assert "no module a_package_of_old, which its loss needs" in skipped[0]
    _, skipped = compared(tmp_path / "other" / "imdb-wiki-dir")
    assert "no folder imdb-wiki-dir" in skipped[0]


def test_an_error_is_a_failure_and_not_skipped(tmp_path: Path):
    found, skipped = compared(write_clone(tmp_path, more="\nweighted_l1_loss = None\n"))
    assert found[-1]["verdict"].startswith("FAILED: TypeError")
    assert not skipped


@pytest.mark.parametrize(
    ("scale", "verdict", "code"), [(1.0, "equal", None), (1.001, "DIFFERENT", 1)]
)
def test_a_difference_of_a_thousandth_is_found_and_published(
    scale: float,
    verdict: str,
    code: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
):
    monkeypatch.setattr("engine.ROOT", tmp_path)
    clone = write_clone(tmp_path / "clone", scale)
    cfg = composed("compare_released", [f"balanced_mse={clone}", f"only={CHECK}", "publish=true"])
    stops = pytest.raises(SystemExit) if code else contextlib.nullcontext()
    with stops as stopped:
        compare_released.main(cfg)
    assert (stopped.value.code if stopped else None) == code
    assert "nkolot/SPIN: no clone given" in capsys.readouterr().out
    content = json.loads((tmp_path / "results" / "fidelity.json").read_text())
    assert [line["verdict"] for line in content["lines"]] == [verdict] * 5
    sizes = [line["difference"] for line in content["lines"]]
    assert sizes == pytest.approx([scale - 1] * 5, rel=1e-2, abs=1e-6)
    assert str(tmp_path) not in json.dumps(content)  # others do not have that folder
    assert (tmp_path / "docs" / "fidelity.md").read_text() == markdown(content)


def test_modules_of_a_clone_do_not_replace_ours(tmp_path: Path):
    (tmp_path / "datasets.py").write_text("from utils import number\nmine = number + 1\n")
    (tmp_path / "utils.py").write_text("number = 41\n")
    path = list(sys.path)
    clone = Clone(tmp_path, ".")
    assert clone.load("datasets").mine == 42
    assert sys.modules["datasets"] is datasets
    assert "utils" not in sys.modules
    assert sys.path == path
    with pytest.raises(Missing, match="no module nothing"):
        clone.load("nothing")


@pytest.mark.parametrize(
    ("size", "verdict"),
    [(1e-7, "equal"), (0.01, "deviation: Resizing"), (0.06, "DIFFERENT: Resizing explains at")],
)
def test_a_deviation_has_a_bound(size: float, verdict: str):
    found = line("age", "test image from 110 x 150, rms", size, 0.0)
    assert found["verdict"].startswith(verdict)


def test_differences_are_by_the_scale_of_each_entry():
    large_and_small = [np.array([1e6]), 1.0], [np.array([1e6]), 1.1]
    assert difference(*large_and_small, relative=True) == pytest.approx(0.1 / 1.1)
    assert difference(np.zeros(3), np.zeros(4), relative=True) == np.inf
    assert difference({"a": np.nan, "b": 1.0}, {"a": np.nan, "b": 1.0}, relative=True) == 0
    assert difference(np.array(["x", "y"]), np.array(["x", "z"]), relative=False) == 1


def test_published_quantities_follow_from_the_rules():
    """The page shows results/fidelity.json, whose verdicts quantities.yaml still gives."""
    content = json.loads((ROOT / "results" / "fidelity.json").read_text())
    assert (ROOT / "docs" / "fidelity.md").read_text() == markdown(content), "publish it again"
    assert len(content["lines"]) == 196
    assert {entry["verdict"].split(":")[0] for entry in content["lines"]} == {"equal", "deviation"}
    listed = [
        rule.get("deviation") for part in RULES["tolerances"].values() for rule in part.values()
    ]
    assert set(listed) - {None} == set(RULES["deviations"])
