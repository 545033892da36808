"""The files of docs/add_a_dataset.md and add_a_method.md are added to a copy of the checkout; the
commands run."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from engine import ROOT
from tests import process

PAGE, METHOD = ROOT / "docs" / "add_a_dataset.md", ROOT / "docs" / "add_a_method.md"
CODE = ("configs", "datasets", "engine", "losses", "metrics", "models", "scripts", "synthetic")
SHORT = {"table": ["seeds=1"], "reproduce": ["seeds=1", "jobs=1"], "train": [], "report": []}


def files(page: Path = PAGE) -> dict[str, str]:
    """Return {path: content} of the files that a page adds."""
    named = r"^`([\w/]+\.(?:py|yaml))`.*?^```(?:python|yaml)\n(.*?)^```"
    return dict(re.findall(named, page.read_text(), re.DOTALL | re.MULTILINE))


def commands(page: Path = PAGE) -> list[list[str]]:
    block = re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)[-1]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code with the files of the pages."""
    root = tmp_path_factory.mktemp("checkout")
    for name in CODE:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "results").symlink_to(ROOT / "results")
    for name, content in (files() | files(METHOD)).items():
        assert not (root / name).exists(), f"{name}: the page may only add files"
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_nine_files_and_two_are_enough():
    assert len(files()) <= 9
    assert len(files(METHOD)) == 2


def test_a_method_is_trained_and_logged(checkout: Path, faces: Path):
    (_, script, *said), *_ = commands(METHOD)
    small = ("dataset.size=32", "trainer.epochs=1", "trainer.workers=0", "log.every=1")
    data = (f"paths.imdb_wiki={faces}/imdb_wiki", "trainer.accelerator=cpu")
    done = process.run(checkout / script, *said, *small, *data, cwd=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (checkout / "outputs").rglob("metrics.json")
    events = EventAccumulator(str(run.parent)).Reload()
    assert events.Scalars("train/regularizer/smooth")[0].value > 0


def test_the_commands_run_and_the_report_shows_the_table(checkout: Path):
    for _, script, *arguments in commands():
        own = [*arguments, *SHORT[Path(script).stem]]
        done = process.run(checkout / script, *own, cwd=checkout)
        assert done.returncode == 0, f"{script} {own}\n{done.stdout}{done.stderr}"
    table = json.loads((checkout / "outputs/tables/patients.json").read_text())
    assert list(table["rows"]) == ["Vanilla", "BMC"]
    assert all(cell["mean"] > 0 for cells in table["rows"].values() for cell in cells.values())
    figures = {path.name for path in (checkout / "outputs/tables/figures").glob("*.png")}
    assert {f"patients_{kind}.png" for kind in ("labels", "gain", "predictions")} <= figures
    page = (checkout / "outputs/report.html").read_text()
    assert "Ages of patients" in page
    assert "bMAE (years) ↓" in page
