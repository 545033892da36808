"""The files of docs/add_a_dataset.md, add_a_method.md and your_faces.md are added to a copy of the
checkout; the commands run."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from datasets.ages import read_csv
from engine import ROOT
from tests import process

NAMES = ("add_a_dataset", "add_a_method", "your_faces")
PAGE, METHOD, FACES = (ROOT / "docs" / f"{name}.md" for name in NAMES)
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
    for name, content in (files() | files(METHOD) | files(FACES)).items():
        assert not (root / name).exists(), f"{name}: the page may only add files"
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_a_few_files_are_enough():
    assert len(files()) <= 9
    assert len(files(METHOD)) == 2
    assert len(files(FACES)) == 3


def test_a_method_is_trained_and_logged(checkout: Path, faces: Path):
    (_, script, *said), *_ = commands(METHOD)
    small = ("dataset.size=32", "trainer.epochs=1", "trainer.workers=0", "log.every=1")
    data = (f"paths.imdb_wiki={faces}/imdb_wiki", "trainer.accelerator=cpu")
    done = process.run(checkout / script, *said, *small, *data, cwd=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (checkout / "outputs").rglob("metrics.json")
    events = EventAccumulator(str(run.parent)).Reload()
    assert events.Scalars("train/regularizer/smooth")[0].value > 0


def test_a_backbone_of_timm_on_own_faces(checkout: Path, faces: Path):
    pytest.importorskip("timm")
    rows = read_csv(faces / "imdb_wiki" / "imdb_wiki.csv")
    lines = ["path,age", *(f"{row.path},{row.age:.0f}" for row in rows)]
    (checkout / "faces.csv").write_text("\n".join(lines))
    shutil.copytree(faces / "imdb_wiki" / "faces", checkout / "data" / "faces" / "faces")
    tiny = ["model.pretrained=false", "model.name=test_resnet"]
    fast = ["dataset.size=32", "paths.epochs=1", "trainer.workers=0", "trainer.accelerator=cpu"]
    short = {"prepare_age": ["cap=3"], "train": [*tiny, *fast], "runs": []}
    short["table"] = [*fast, "table.figures=null", "seeds=1"]
    for _, script, *said in commands(FACES):
        listed = ",".join(f"'{word}'" for word in ("model=timm", *tiny))
        own = [f"overrides=[{listed}]" if word.startswith("overrides") else word for word in said]
        own += short[Path(script).stem]
        done = process.run(checkout / script, *own, cwd=checkout)
        assert done.returncode == 0, f"{script} {own}\n{done.stdout}{done.stderr}"
    assert "imdb_wiki/bmc/laptop/seed0-faces-" in done.stdout  # of runs.py
    assert "finished" in done.stdout


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
