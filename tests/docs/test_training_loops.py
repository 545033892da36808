"""Every training loop of docs/training_loops.md runs, and trains sigma. That of DDP is run by
tests/losses/calls/test_ranks.py."""

import importlib
import re
import sys
import warnings
from pathlib import Path

import pytest
import torch

import losses
from losses import BMC

PAGE = Path(__file__).parents[2] / "docs" / "training_loops.md"
LIBRARIES = {"Lightning": "lightning", "Hugging Face Trainer": "transformers"}
LIBRARIES |= {"Keras on torch": "keras"}
FIRST = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]


def run(section: str) -> dict:
    """Run the data of the page and the code of one section; return its names."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    sys.modules["balanced_regression"] = losses
    names = {"__name__": "page"}
    for block in (FIRST, *blocks):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "balanced_regression", losses)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("section", ["Plain PyTorch", *LIBRARIES])
def test_a_loop_trains_sigma(section, monkeypatch, recwarn):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    if name := LIBRARIES.get(section):
        with warnings.catch_warnings(action="ignore"):
            pytest.importorskip(name)
            if name == "transformers":  # takes this project's `datasets` for its own
                trainer = importlib.import_module("transformers.trainer")
                monkeypatch.setattr(trainer, "is_datasets_available", lambda: False)
    assert run(section)["loss"].sigma > 1.05
    assert not [one for one in recwarn if "learned sigma" in str(one.message)]


def test_the_table_of_gradient_accumulation_is_measured(capsys):
    run("Gradient accumulation")
    assert capsys.readouterr().out in PAGE.read_text()


def test_missing_labels():
    """The loss of the known numbers alone."""
    names = run("Missing labels")
    pred, target, known = (names[name].double() for name in ("pred", "target", "known"))
    total = 0
    for d in range(2):
        seen = known[:, d] > 0
        total += BMC(1.0, reduction="sum")(pred[seen, d], target[seen, d])
    torch.testing.assert_close(names["total"].double(), total / known.sum(), rtol=1e-5, atol=0)
