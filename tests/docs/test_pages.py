"""The Python code of every page runs, and so does the tutorial; named files and classes exist."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import sklearn.model_selection
import torch

import losses.boosting
import losses.estimator.rebalanced  # noqa: F401  imported by name in a page
import metrics

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
CLASSES = {
    name
    for folder in ("datasets", "engine", "losses", "metrics", "models")
    for path in (DOCS.parent / folder).rglob("*.py")
    for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)
}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch):
    """Let `balanced_regression` be this checkout, whatever is installed."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "losses":
            monkeypatch.setitem(sys.modules, f"balanced_regression{name[len('losses') :]}", module)
    monkeypatch.setitem(sys.modules, "balanced_regression.metrics", metrics)


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != "training_loops"], ids=lambda page: page.stem
)
def test_the_code_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch):
    """The sections of training_loops.md are run one by one by test_training_loops.py."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    if any("import timm" in block for block in blocks):
        pytest.importorskip("timm")
    if find_spec("keras") is None:
        blocks = [block for block in blocks if "import keras" not in block]
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "page"})


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=lambda page: page.stem)
def test_files_and_links_that_a_page_names_exist(page: Path):
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    named = re.findall(
        r"(?<!^)`((?:configs|datasets|docs|engine|losses|tests|scripts)/[\w./]+\.\w+)`",
        text,
        re.MULTILINE,  # a file at the beginning of a line is one that the page adds
    )
    for name in links:
        assert (page.parent / name).exists(), name
    for name in named:
        assert (DOCS.parent / name).exists(), name


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=lambda page: page.stem)
def test_classes_that_a_page_names_exist(page: Path):
    named = set(re.findall(r"`([A-Z]\w*[a-z]\w*)[`(]", page.read_text())) - CLASSES
    others = (sklearn.model_selection, torch.nn, torch.distributions)
    assert not [name for name in named if not any(hasattr(lib, name) for lib in others)]


def test_the_tutorial_runs_and_its_text_is_true(capsys: pytest.CaptureFixture):
    book = json.loads((DOCS / "tutorial.ipynb").read_text())
    names: dict = {"__name__": "tutorial"}
    for number, cell in enumerate(book["cells"]):
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "clear the outputs before committing"
            exec(compile("".join(cell["source"]), f"tutorial.ipynb cell {number}", "exec"), names)
    assert "balanced MAE" in capsys.readouterr().out
    results = names["results"]
    for method in ("BMC", "GAI", "BNI", "estimator"):
        assert results[method]["balanced MAE"] < results["MSE"]["balanced MAE"]
        assert results[method]["MAE"] > results["MSE"]["MAE"]  # the price, as its text says


def test_every_page_is_in_the_menu_of_the_site():
    menu = (DOCS.parent / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert not [page.name for page in PAGES if f": {page.name}\n" not in menu]
