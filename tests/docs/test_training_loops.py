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
def library(request, monkeypatch):
    """The section of a loop, skipped if its library is not installed."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setitem(sys.modules, "balanced_regression", losses)
    if name := LIBRARIES.get(getattr(request, "param", "")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pytest.importorskip(name)
            if name == "transformers":  # takes this project's `datasets` for its own
                trainer = importlib.import_module("transformers.trainer")
                monkeypatch.setattr(trainer, "is_datasets_available", lambda: False)
    return getattr(request, "param", None)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("library", "section"),
    [(name, name) for name in ("Plain PyTorch", *LIBRARIES)],
    indirect=["library"],
)
def test_a_loop_trains_sigma(section, recwarn):
    assert run(section)["loss"].sigma > 1.05
    assert not [one for one in recwarn if "learned sigma" in str(one.message)]


def forget_in_hugging_face(names: dict, loss: BMC) -> None:
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Linear(3, 1)

        def forward(self, inputs, labels=None):
            return {"logits": self.model(inputs)}

    def compute(outputs, labels, **_):
        return loss(outputs["logits"], labels)

    names["Trainer"](
        Plain(), names["arguments"], train_dataset=names["rows"], compute_loss_func=compute
    ).train()


def forget_in_keras(names: dict, loss: BMC) -> None:
    keras = names["keras"]
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss=lambda y, pred: loss(pred, y))
    model.fit(names["x"].numpy(), names["y"].numpy(), epochs=2, batch_size=64, verbose=0)


def forget_in_lightning(names: dict, loss: BMC) -> None:
    class Forgetful(names["Regressor"]):
        def configure_optimizers(self):
            return torch.optim.Adam(self.model.parameters())

    regressor = Forgetful()
    regressor.loss = loss
    data = names["DataLoader"](names["TensorDataset"](names["x"], names["y"]), batch_size=64)
    names["trainer"].fit_loop.max_epochs = 4
    names["trainer"].fit(regressor, data)


FORGET = [forget_in_lightning, forget_in_hugging_face, forget_in_keras]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("library", "forget"), list(zip(LIBRARIES, FORGET, strict=True)), indirect=["library"]
)
def test_a_forgotten_sigma_gets_one_warning(library, forget, recwarn):
    names, loss = run(library), BMC(sigma=1.0, learn_sigma=True, queue=1024)
    forget(names, loss)
    assert loss.sigma == 1
    assert len([one for one in recwarn if "learned sigma" in str(one.message)]) == 1


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
